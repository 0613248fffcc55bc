"""The quiz of a chapter: questions with one right answer, and a reason for every answer.

The questions stand in encoder_lib/quizzes/NN.toml. Without scripts the quiz is a list that folds
its answers away; a script lets the reader check one choice at a time.
"""

import hashlib
import json
import re
import tomllib
from html import escape
from importlib.resources import files
from typing import NamedTuple

from IPython.display import HTML

from encoder_lib.widgets._page import DARK_ROOTS, STYLE, own_key

LAST_CHAPTER = 13
QUESTIONS, OPTIONS = (5, 8), (3, 4)
LETTERS = "ABCD"
ASLEEP = (
    "Your choice is checked where scripts may run: on the site of the book, or in a notebook "
    "once this cell has been run. Everywhere else, the answers are folded below each question."
)


class Option(NamedTuple):
    """One answer to choose: its words, why it is right or wrong, and whether it is right."""

    text: str
    why: str
    correct: bool


class Question(NamedTuple):
    """What is asked, the heading of the chapter that says it, and the options as stored."""

    ask: str
    reread: str
    options: tuple


class Quiz(NamedTuple):
    """The questions of one chapter, under its name."""

    title: str
    questions: tuple


# --- the file -----------------------------------------------------------------------------------


def load_quiz(chapter) -> Quiz:
    """The quiz of a chapter, checked.

    Args: chapter: 0 to 13, or its two digits, such as "03".
    Raises: TypeError and ValueError for another chapter; FileNotFoundError for one without a
        quiz; ValueError for a file that breaks a rule, with its name, the question, the rule.
    """
    name = f"encoder_lib/quizzes/{_digits(chapter)}.toml"
    source = files("encoder_lib").joinpath("quizzes", f"{_digits(chapter)}.toml")
    if not source.is_file():
        raise FileNotFoundError(f"chapter {_digits(chapter)} has no quiz: {name} is not there")
    return parse_quiz(source.read_text("utf-8"), name)


def _digits(chapter):
    if isinstance(chapter, bool) or not isinstance(chapter, int | str):
        raise TypeError(f"chapter must be an int or a string, got {type(chapter).__name__}")
    if isinstance(chapter, str) and not re.fullmatch("[0-9]{2}", chapter):
        raise ValueError(f'chapter must be two digits such as "03", got {chapter!r}')
    if not 0 <= int(chapter) <= LAST_CHAPTER:
        raise ValueError(f"chapter must be between 0 and {LAST_CHAPTER}, got {chapter!r}")
    return f"{int(chapter):02d}"


def parse_quiz(source, name) -> Quiz:
    """A quiz from the text of its file; ``name`` is what errors call the file.

    Raises: ValueError for TOML that cannot be read, 5 to 8 questions, 3 to 4 options, exactly
        one correct, texts that are not empty, no unknown keys.
    """
    try:
        table = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} is not TOML: {error}") from None
    _keys(table, ("title", "questions"), name)
    title, tables = _text(table, "title", name), _tables(table, "questions", name, QUESTIONS)
    questions = tuple(_question(each, f"{name}, question {n}") for n, each in enumerate(tables, 1))
    _differ([question.ask for question in questions], "ask", name)
    return Quiz(title, questions)


def _question(table, where):
    _keys(table, ("ask", "reread", "options"), where)
    ask, reread = _text(table, "ask", where), _text(table, "reread", where)
    if re.search("[\"']", reread):  # the site sets curly ones, and the link finds no such heading
        raise ValueError(f"{where}: reread must name a heading without quotation marks or "
                         f"apostrophes, got {reread!r}")  # fmt: skip
    tables = _tables(table, "options", where, OPTIONS)
    options = tuple(_option(each, f"{where}, option {n}") for n, each in enumerate(tables, 1))
    _differ([option.text for option in options], "text", where)
    if (right := sum(option.correct for option in options)) != 1:
        raise ValueError(f"{where}: exactly one option must have correct = true, got {right}")
    return Question(ask, reread, options)


def _option(table, where):
    _keys(table, ("text", "why", "correct"), where)
    correct = table.get("correct", False)
    if not isinstance(correct, bool):
        raise ValueError(f"{where}: correct must be true or left out, got {correct!r}")
    return Option(_text(table, "text", where), _text(table, "why", where), correct)


def _keys(table, allowed, where):
    if unknown := sorted(set(table) - set(allowed)):
        raise ValueError(f"{where}: the keys are {', '.join(allowed)}, got {', '.join(unknown)}")


def _tables(table, key, where, limits):
    found, (least, most) = table.get(key, []), limits
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{where}: {key} must be tables, each under its own [[...]]")
    if not least <= len(found) <= most:
        raise ValueError(f"{where}: {key} must be {least} to {most}, got {len(found)}")
    return found


def _text(table, key, where):
    words = table.get(key)
    if not isinstance(words, str) or not words.strip():
        raise ValueError(f"{where}: {key} must be text that is not empty, got {words!r}")
    if "$" in words:
        raise ValueError(f"{where}: {key} must be plain text without $maths$, got {words!r}")
    if words.count("`") % 2 or "``" in words:
        raise ValueError(f"{where}: {key} must close every backtick, got {words!r}")
    return " ".join(words.split())


def _differ(texts, key, where):
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise ValueError(f"{where}: each {key} must differ from the others, got twice {twice[0]!r}")


# --- the order ----------------------------------------------------------------------------------


def in_order(questions) -> list:
    """The options of each question as they are shown: lists of Option.

    The wrong ones keep the stored order. The right one goes where right ones have stood least
    often so far, and a hash of the question decides between such places: no place is a hint.
    """
    used, shown = [0] * len(LETTERS), []
    for question in questions:
        places = range(len(question.options))
        at = min(places, key=lambda n: (used[n], _hash(f"{n} {question.ask}")))
        used[at] += 1
        options = [option for option in question.options if not option.correct]
        options.insert(at, next(option for option in question.options if option.correct))
        shown.append(options)
    return shown


def _hash(words):
    return hashlib.sha1(words.encode()).hexdigest()


# --- the page -----------------------------------------------------------------------------------


def quiz(chapter, key=None) -> HTML:
    """The quiz of a chapter, to answer in the page.

    Args:
        chapter: 0 to 13, or its two digits, such as "03".
        key: id of the quiz, unique on its page; None makes one from the questions.

    Returns: ``IPython.display.HTML``; the same string for the same arguments.
    Raises: as load_quiz; TypeError and ValueError for a key that cannot be an id.
    """
    return quiz_page(load_quiz(chapter), _digits(chapter), key)


def quiz_page(loaded, chapter, key=None) -> HTML:
    """A loaded Quiz as ``HTML``; ``chapter`` is its two digits."""
    key = own_key("quiz", key, [chapter, loaded])
    shown = zip(loaded.questions, in_order(loaded.questions), strict=True)
    body = "".join(_fieldset(key, n, *each) for n, each in enumerate(shown, 1))
    code = SCRIPT.replace("KEY", json.dumps(key))
    title = f"Quiz: {loaded.title.replace('`', '')}"
    return HTML(
        f'<div class="eb-pe eb-pe-quiz" id="{key}" data-quiz="{chapter}" role="group"'
        f' aria-label="{escape(title)}"><style>{STYLE}{QUIZ_STYLE}</style>'
        f'<p class="eb-pe-title"><strong>{_marked(loaded.title)}</strong></p>'
        f'<p class="eb-pe-asleep">{ASLEEP}</p>{body}'
        f'<div class="eb-pe-end" aria-live="polite"></div><script>{code}</script></div>'
    )


def _marked(words):
    """Words as markup: escaped, with what stands in backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(words))


def _fieldset(key, number, question, options):
    """One question: its options, a place for what is said, the folded answer."""
    right = LETTERS[[option.correct for option in options].index(True)]
    choices = "".join(
        f'<div class="eb-pe-option"><label><input type="radio" name="{key}-{number}"'
        f' value="{letter}"><span><b>{letter}.</b> {_marked(option.text)}</span></label></div>'
        for letter, option in zip(LETTERS, options, strict=False)
    )
    return (
        f'<fieldset class="eb-pe-question" data-right="{right}">'
        f"<legend><b>{number}.</b> {_marked(question.ask)}</legend>{choices}"
        f'<div class="eb-pe-said" aria-live="polite"></div>{_folded(question, options)}</fieldset>'
    )


def _folded(question, options):
    """The answer and all reasons; the script takes its words from here."""
    reasons = "".join(
        f"<li><b>{letter}{' is right.' if option.correct else ' is not.'}</b>"
        f' <span class="eb-pe-why">{_marked(option.why)}</span></li>'
        for letter, option in zip(LETTERS, options, strict=False)
    )
    return (
        '<details class="eb-pe-more"><summary>Answer and reasons</summary>'
        f'<ul class="eb-pe-reasons">{reasons}</ul><p class="eb-pe-reread">Reread: section'
        f" “<span>{_marked(question.reread)}</span>”.</p></details>"
    )


# Bootstrap floats legends, the book and JupyterLab dress paragraphs and code: all are set back.
QUIZ_STYLE = """
.eb-pe-quiz{--eb-pe-right:#0b6b3a;--eb-pe-wrong:#a3262a;color-scheme:light}
DARK{--eb-pe-right:#7fdba6;--eb-pe-wrong:#ff9d97;color-scheme:dark}
.eb-pe-quiz p{margin:0 0 .4em;color:inherit;font-size:inherit;max-width:none}
.eb-pe-quiz .eb-pe-title{font-size:16px}
.eb-pe.eb-pe-quiz code{padding:0 .2em;border:1px solid var(--eb-pe-line);border-radius:3px;
  background:none;color:inherit;font:.92em ui-monospace,Menlo,Consolas,"Liberation Mono",monospace;
  overflow-wrap:anywhere}
.eb-pe-quiz .eb-pe-question{min-width:0;margin:0;padding:14px 0;border:0;
  border-top:1px solid var(--eb-pe-line);overflow-wrap:break-word}
.eb-pe-quiz legend{float:left;width:100%;margin:0 0 6px;padding:0;border:0;color:inherit;
  font:inherit;font-weight:600}
.eb-pe-quiz .eb-pe-option{clear:both}
.eb-pe-quiz .eb-pe-option label{display:flex;gap:9px;align-items:flex-start;margin:0;
  padding:4px 6px;border-radius:4px;color:inherit;font:inherit;cursor:pointer}
.eb-pe-quiz .eb-pe-option input{flex:none;width:18px;height:18px;margin:2px 0 0;
  accent-color:var(--eb-pe-on)}
.eb-pe-quiz .eb-pe-option label>span{flex:1;min-width:0}
.eb-pe-quiz .eb-pe-verdict{margin-left:.3em;font-weight:600;white-space:nowrap}
.eb-pe-quiz .eb-pe-right{color:var(--eb-pe-right)}
.eb-pe-quiz .eb-pe-wrong{color:var(--eb-pe-wrong)}
.eb-pe-quiz .eb-pe-check{margin:6px 0}
.eb-pe-quiz .eb-pe-said p{padding-left:10px;border-left:3px solid currentColor}
.eb-pe-quiz .eb-pe-said p>span{color:var(--eb-pe-ink)}
.eb-pe-quiz .eb-pe-said a{color:inherit;text-decoration:underline}
.eb-pe-quiz .eb-pe-reasons{margin:6px 0;padding-left:20px;color:inherit}
.eb-pe-quiz .eb-pe-end:not(:empty){padding-top:12px;border-top:1px solid var(--eb-pe-line)}
@media print{.eb-pe-quiz button{display:none}
  .eb-pe-quiz details::details-content{display:block;content-visibility:visible}}
""".replace("DARK", DARK_ROOTS.replace(".eb-pe", ".eb-pe-quiz"))

# Buttons are made here and not in the markup: where scripts are stripped there are no dead ones.
# JupyterLab moves between cells by arrow keys unless the focused element says that it needs them.
SCRIPT = """
(function () {
  var root = document.getElementById(KEY);
  if (!root || root.dataset.ready) { return; }
  root.dataset.ready = "1";
  var boxes = Array.from(root.querySelectorAll(".eb-pe-question"));
  var end = root.querySelector(".eb-pe-end"), score = make("p", "", "eb-pe-score"), first = [];
  function make(tag, words, css) {
    var e = document.createElement(tag);
    e.textContent = words;
    e.className = css;
    return e;
  }
  function button(words, name, act) {
    var e = make("button", words, "eb-pe-check");
    e.type = "button";
    e.setAttribute("aria-label", name);
    e.addEventListener("click", act);
    return e;
  }
  function count() {
    var tried = first.filter(function (e) { return e !== undefined; });
    var open = boxes.length - tried.length;
    score.textContent = tried.filter(Boolean).length + " of " + boxes.length
      + " right at the first try" + (open ? "; " + open + " not tried yet." : ".");
  }
  function heading(words) {
    return Array.from(document.querySelectorAll("h1,h2,h3,h4,h5")).find(function (e) {
      return e.textContent.replace(/[#\\u00b6]\\s*$/, "").trim() === words;
    });
  }
  function reread(box) {
    var line = box.querySelector(".eb-pe-reread").cloneNode(true), span = line.firstElementChild;
    var found = heading(span.textContent), part = found && found.closest("section[id]");
    var id = found && (found.id || part && part.id), out = make("span", " ", "");
    if (id) {
      var link = make("a", "", "");
      link.href = "#" + id;
      link.append.apply(link, Array.from(span.childNodes));
      span.append(link);
    }
    out.append.apply(out, Array.from(line.childNodes));
    return out;
  }
  function clear(box, name) {
    box.querySelectorAll(".eb-pe-" + name).forEach(function (e) { e.remove(); });
  }
  function check(box, at) {
    var inputs = Array.from(box.querySelectorAll("input"));
    var chosen = inputs.findIndex(function (e) { return e.checked; });
    var said = box.querySelector(".eb-pe-said");
    said.textContent = "";
    if (chosen < 0) { said.append(make("p", "Choose an answer first.", "")); return; }
    var right = inputs[chosen].value === box.dataset.right, css = right ? "right" : "wrong";
    if (first[at] === undefined) { first[at] = right; }
    var words = inputs[chosen].nextElementSibling, line = make("p", "", "eb-pe-" + css);
    clear(words, "verdict");
    words.append(" ", make("span", right ? "\\u2713 right" : "\\u2717 not this one",
      "eb-pe-verdict eb-pe-" + css));
    line.append(make("strong", right ? "\\u2713 Right." : "\\u2717 Not this one.", ""));
    var why = box.querySelectorAll(".eb-pe-why")[chosen].cloneNode(true);
    why.prepend(" " + inputs[chosen].value + ": ");
    line.append(why);
    if (!right) { line.append(reread(box)); }
    said.append(line);
    count();
  }
  function start() {
    first = [];
    boxes.forEach(function (box) {
      box.querySelectorAll("input").forEach(function (e) { e.checked = false; });
      box.querySelector(".eb-pe-said").textContent = "";
      box.querySelector("details").open = false;
      clear(box, "verdict");
    });
    count();
  }
  boxes.forEach(function (box, at) {
    var act = function () { check(box, at); };
    box.querySelector(".eb-pe-said").before(button("Check", "Check question " + (at + 1), act));
  });
  end.append(score);
  end.after(button("Start again", "Start again", function () {
    start();
    root.querySelector("input").focus();
  }));
  root.querySelectorAll("input,button,summary").forEach(function (e) {
    e.setAttribute("data-lm-suppress-shortcuts", "true");
  });
  root.querySelector(".eb-pe-asleep").hidden = true;
  start();
})();
"""
