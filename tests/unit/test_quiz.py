"""Quizzes: the files, the errors of their loader, and the page as a string.

What the script does in a browser is tested in tests/site/test_site_quizzes.py.
"""

import re
import tomllib
from collections import Counter

import pytest
from test_widgets import Markup

import project
from encoder_lib.widgets import quiz
from encoder_lib.widgets.quiz import LETTERS, in_order, load_quiz, parse_quiz, quiz_page

FILES = sorted((project.ROOT / "encoder_lib" / "quizzes").glob("*.toml"))
NAMES = [path.stem for path in FILES]


def question(number, options=3, right=0, **changes):
    """One question of a file that is in order, as TOML."""
    lines = [f'ask = "Question {number}?"', f'reread = "Section {number}"']
    lines = [changes.get(line.split()[0], line) for line in lines]
    for at in range(options):
        extra = "\ncorrect = true" if at == right else ""
        lines.append(
            f'[[questions.options]]\ntext = "Option {at}."\n'
            f'why = "Reason {number}-{at}, in five words."{extra}'
        )
    return "[[questions]]\n" + "\n".join(line for line in lines if line) + "\n"


def source(*others, count=5, first=None):
    """A file of ``count`` questions, of which the first may be another."""
    questions = [first or question(1)] + [question(n) for n in range(2, count + 1)]
    return 'title = "A title"\n' + "".join([*questions, *others])


def parse(text):
    return parse_quiz(text, "quizzes/99.toml")


def page(text, key="q"):
    return quiz_page(parse(text), "99", key).data


# --- the loader ---------------------------------------------------------------------------------


def test_a_file_is_read_in_its_order():
    loaded = parse(source(first=question(1, options=4, right=2)))
    assert loaded.title == "A title"
    assert [each.ask for each in loaded.questions] == [f"Question {n}?" for n in range(1, 6)]
    first = loaded.questions[0]
    assert first.reread == "Section 1"
    assert [option.text for option in first.options] == [f"Option {n}." for n in range(4)]
    assert [option.correct for option in first.options] == [False, False, True, False]
    assert first.options[3].why == "Reason 1-3, in five words."


@pytest.mark.parametrize("count", [5, 8])
def test_five_to_eight_questions_are_read(count):
    assert len(parse(source(count=count)).questions) == count


def test_lines_of_text_are_joined():
    text = question(1, ask='ask = """Which of\n  these?"""')
    assert parse(source(first=text)).questions[0].ask == "Which of these?"


def without(line):
    return question(1).replace(line, "", 1)


def changed(old, new):
    assert old in question(1)
    return question(1).replace(old, new, 1)


@pytest.mark.parametrize(
    "first, named",
    [
        (without('ask = "Question 1?"\n'), "question 1: ask must be text that is not empty"),
        (changed('"Section 1"', '" "'), "question 1: reread must be text that is not empty"),
        (changed('"Section 1"', '"Torch\'s stack"'), "question 1: reread .* apostrophes, got"),
        (changed('"Option 1."', '""'), "question 1, option 2: text must be text .* got ''"),
        (changed('"Option 1."', "7"), "question 1, option 2: text must be text .* got 7"),
        (without('why = "Reason 1-0, in five words."'), "question 1, option 1: why must be text"),
        (without("correct = true"), "question 1: exactly one option must .* true, got 0"),
        (changed('text = "Option 2."', 'text = "x"\ncorrect = true'), "exactly one .* got 2"),
        (changed("correct = true", "correct = 1"), "option 1: correct must be true or left out"),
        (question(1, options=2), "question 1: options must be 3 to 4, got 2"),
        (question(1, options=5), "question 1: options must be 3 to 4, got 5"),
        (changed("ask =", "hint = 1\nask ="), "question 1: the keys are ask, .*, got hint"),
        (changed("text =", "note = 1\ntext ="), "option 1: the keys are text, .*, got note"),
        (changed("Option 1.", "Option 0."), "question 1: each text must differ .* 'Option 0.'"),
        (changed("Question 1?", "Question 2?"), "toml: each ask must differ .* 'Question 2"),
        (changed("Option 1.", "$x$"), "option 2: text must be plain text without"),
        (changed("Option 1.", "a `b"), "option 2: text must close every backtick"),
        (changed("Option 1.", "``a``"), "option 2: text must close every backtick"),
        ('[[questions]]\nask = "A?"\nreread = "B"\noptions = 3\n', "options must be tables"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused_by_name(first, named):
    with pytest.raises(ValueError, match=named) as caught:
        parse(source(first=first))
    assert str(caught.value).startswith("quizzes/99.toml")


@pytest.mark.parametrize(
    "text, named",
    [
        (source(count=4), "questions must be 5 to 8, got 4"),
        (source(count=9), "questions must be 5 to 8, got 9"),
        ('title = "A"', "questions must be 5 to 8, got 0"),
        (source().replace("title =", "name ="), "the keys are title, questions, got name"),
        (source().replace('"A title"', '""'), "title must be text that is not empty"),
        ("title = ", "quizzes/99.toml is not TOML: "),
    ],
)
def test_a_wrong_file_is_refused_by_name(text, named):
    with pytest.raises(ValueError, match=named) as caught:
        parse(text)
    assert str(caught.value).startswith("quizzes/99.toml")


@pytest.mark.parametrize(
    "chapter, error, named",
    [
        (-1, ValueError, "between 0 and 13, got -1"),
        (14, ValueError, "between 0 and 13, got 14"),
        ("14", ValueError, "between 0 and 13, got '14'"),
        ("3", ValueError, "two digits such as \"03\", got '3'"),
        ("../03", ValueError, "two digits"),
        ("٠٣", ValueError, "two digits"),
        (3.0, TypeError, "an int or a string, got float"),
        (True, TypeError, "an int or a string, got bool"),
        (None, TypeError, "got NoneType"),
    ],
)
def test_a_wrong_chapter_is_refused(chapter, error, named):
    for function in (load_quiz, quiz):
        with pytest.raises(error, match=named):
            function(chapter)


def test_a_chapter_without_a_quiz_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(load_quiz.__globals__, "files", lambda package: tmp_path)
    with pytest.raises(FileNotFoundError, match="encoder_lib/quizzes/03.toml is not there"):
        load_quiz(3)


# --- the order ----------------------------------------------------------------------------------


def places(questions):
    """Where the right option of each question is shown."""
    return [[option.correct for option in options].index(True) for options in in_order(questions)]


def test_wrong_options_keep_their_order_and_none_is_lost():
    loaded = parse(source(first=question(1, options=4, right=1), count=8))
    for each, shown in zip(loaded.questions, in_order(loaded.questions), strict=True):
        assert Counter(shown) == Counter(each.options)
        wrong = [option for option in each.options if not option.correct]
        assert [option for option in shown if not option.correct] == wrong


def test_the_place_does_not_follow_from_the_stored_one():
    one, two = (parse(source(first=question(1, right=right))) for right in (0, 2))
    assert places(one.questions) == places(two.questions)


@pytest.mark.parametrize("options", [3, 4])
def test_places_are_shared_evenly(options):
    text = "".join(question(n, options) for n in range(1, 9))
    found = Counter(places(parse(f'title = "T"\n{text}').questions))
    assert len(found) == options
    assert max(found.values()) - min(found.values()) <= 1


def test_one_more_question_moves_none_before_it():
    assert places(parse(source(count=8)).questions)[:5] == places(parse(source()).questions)


# --- the page -----------------------------------------------------------------------------------

HTML = page(source(first=question(1, options=4)))


def test_the_page_is_a_small_and_fixed_string():
    assert page(source()) == page(source())
    assert quiz(3).data == quiz("03").data


def test_keys_change_names_alone():
    one, two = page(source(), "left"), page(source(), "right-1")
    assert one != two
    assert re.sub(r'"left(?=["-])', '"right-1', one) == two


def test_own_key_follows_the_questions():
    (own,) = Markup(page(source(), None)).ids
    (other,) = Markup(page(source(count=6), None)).ids
    assert re.fullmatch("quiz-[0-9a-f]{8}", own) and own != other


@pytest.mark.parametrize(
    "key, error", [("", ValueError), ("7up", ValueError), ("a b", ValueError), (7, TypeError)]
)
def test_bad_keys_are_refused(key, error):
    with pytest.raises(error, match="key"):
        quiz(3, key=key)


def test_markup_is_balanced_and_prefixed():
    markup = Markup(HTML)
    assert markup.open == [] and markup.ids == ["q"]
    classes = {c for _, n, v in markup.attributes if n == "class" for c in v.split()}
    assert {c for c in classes if not re.match(r"eb-pe(-|$)", c)} == set()


def test_nothing_is_loaded_and_nothing_is_inline():
    assert not re.search(r"https?:|//\w|url\(|@import|<link|<img|<iframe|fetch\(|import\(", HTML)
    bad = [a for a in Markup(HTML).attributes if a[1] in ("src", "href", "style")]
    assert bad + [a for a in Markup(HTML).attributes if a[1].startswith("on")] == []


def test_questions_are_native_groups_of_radio_buttons():
    assert HTML.count("<fieldset ") == HTML.count("<legend>") == 5
    assert HTML.count("<input ") == HTML.count("<label>") == 4 + 4 * 3
    names = re.findall(r'<input type="radio" name="([^"]+)" value="([A-D])">', HTML)
    assert Counter(name for name, _ in names) == {"q-1": 4, "q-2": 3, "q-3": 3, "q-4": 3, "q-5": 3}
    assert [value for name, value in names if name == "q-1"] == list(LETTERS)
    assert "<button" not in HTML.split("<script>")[0]  # dead without a script
    assert HTML.count('aria-live="polite"') == 6


def test_the_answer_stands_folded_below_each_question():
    loaded = parse(source(first=question(1, options=4)))
    blocks = re.findall(r"<fieldset.*?</fieldset>", HTML, re.S)
    for each, options, block in zip(
        loaded.questions, in_order(loaded.questions), blocks, strict=True
    ):
        words = " ".join(" ".join(Markup(block).text).split())
        right = LETTERS[[option.correct for option in options].index(True)]
        assert f'data-right="{right}"' in block
        assert '<details class="eb-pe-more"><summary>Answer and reasons</summary>' in block
        for letter, option in zip(LETTERS, options, strict=False):
            verdict = "is right." if option.correct else "is not."
            assert f"{letter}. {option.text}" in words
            assert f"{letter} {verdict} {option.why}" in words
        assert f"Reread: section “ {each.reread} ”." in words


def test_text_is_text_and_backticks_are_code():
    odd = '<img src=x onerror=1> & `a < "b"` </script><script>alert(1)</script>'
    text = source(first=question(1).replace('"Option 1."', f"'{odd}'"))
    html = page(text.replace('"A title"', "'<b>`T`\"'").replace('"Section 1"', "'A <i> `s`'"))
    markup = Markup(html)
    assert markup.open == []
    assert html.count("<script") == 1 and not {"img", "i"} & {tag for tag, *_ in markup.attributes}
    assert "&lt;img src=x onerror=1&gt; &amp; <code>a &lt; &quot;b&quot;</code>" in html
    assert "“<span>A &lt;i&gt; <code>s</code></span>”" in html
    assert 'aria-label="Quiz: &lt;b&gt;T&quot;"' in html


# --- the quizzes of the book --------------------------------------------------------------------


def headings(name):
    """The headings of a chapter, as its source has them."""
    (path,) = (project.ROOT / "notebooks" / "src").glob(f"{name}_*.py")
    return re.findall(r"^# #{2,4} (.+)$", path.read_text("utf-8"), re.MULTILINE)


def test_there_is_a_quiz_and_names_are_chapters():
    assert "03" in NAMES
    assert all(re.fullmatch(r"0\d|1[0-3]", name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    def test_is_read_and_fits_in_a_page(self, name):
        assert load_quiz(name) == load_quiz(int(name))
        html = quiz(name).data
        assert Markup(html).open == []
        assert len(html.encode()) < 40_000

    def test_rereading_leads_to_a_heading_of_the_chapter(self, name):
        wanted = [each.reread for each in load_quiz(name).questions]
        assert [heading for heading in wanted if heading not in headings(name)] == []
        assert len(set(wanted)) >= 3, "one section is asked about, not the chapter"

    def test_reasons_say_something_of_their_own(self, name):
        for each in load_quiz(name).questions:
            reasons = [option.why for option in each.options]
            assert [why for why in reasons if len(why.split()) < 5] == []
            assert len(set(reasons)) == len(reasons)
            assert not set(reasons) & {option.text for option in each.options}

    def test_neither_place_nor_length_gives_the_answer_away(self, name):
        questions = load_quiz(name).questions
        found = Counter(places(questions))
        assert len(found) >= 3 and max(found.values()) <= len(questions) / 2
        longest = [max(each.options, key=lambda option: len(option.text)) for each in questions]
        assert sum(option.correct for option in longest) <= 2 * len(questions) / 3

    def test_the_file_says_no_more_than_it_must(self, name):
        table = tomllib.loads((FILES[NAMES.index(name)]).read_text("utf-8"))
        options = [option for each in table["questions"] for option in each["options"]]
        assert [option for option in options if option.get("correct") is False] == []
