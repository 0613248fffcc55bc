"""The pages for teachers agree with the chapters, their minutes add up, their numbers are right."""

import math
import re
import tomllib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import teaching
from encoder_lib import (
    LayerNorm,
    RMSNorm,
    TransformerEncoder,
    checks,
    masked_mean,
    scaled_dot_product_attention,
)
from encoder_lib.training import noam_rate

PAGES = {path.name: path.read_text("utf-8") for path in sorted(teaching.TEACH.glob("*.md"))}
WRITTEN = {name: text for name, text in PAGES.items() if name != "wrong_answers.md"}
PLANS = ("four_weeks.md", "one_day.md")
NOTEBOOKS = {path.stem: path for path in sorted((teaching.ROOT / "notebooks").glob("*.ipynb"))}
HEADING = re.compile(r"^#{2,4} (.+)$", re.MULTILINE)


def cells(stem, kind):
    nb = teaching.nbformat.read(NOTEBOOKS[stem], as_version=4)
    return [cell for cell in nb.cells if cell.cell_type == kind]


def headings(stem):
    return {h.strip() for c in cells(stem, "markdown") for h in HEADING.findall(c.source)}


def printed(stem):
    outputs = [out for cell in cells(stem, "code") for out in cell.outputs]
    return "\n".join(out.get("text", "") for out in outputs)


# --- generated parts ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fresh():
    return {path.name: text for path, text in teaching.pages().items()}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_up_to_date(name, fresh):
    assert PAGES[name] == fresh[name], "run make teach"


def test_check_says_what_is_stale_and_writes_nothing(tmp_path, monkeypatch, capsys):
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "hints.toml").write_bytes((teaching.TEACH / "hints.toml").read_bytes())
    (tmp_path / "wrong_answers.md").write_text("# Typed by hand\n", "utf-8")
    monkeypatch.setattr(teaching, "TEACH", tmp_path)
    monkeypatch.setattr(teaching, "WRONG", tmp_path / "wrong_answers.md")
    assert teaching.main(["--check"]) == 1
    assert capsys.readouterr().out == "wrong_answers.md: run make teach\n"
    assert teaching.WRONG.read_text("utf-8") == "# Typed by hand\n"
    assert teaching.main([]) == 0 and teaching.main(["--check"]) == 0
    assert teaching.WRONG.read_text("utf-8") == PAGES["wrong_answers.md"]


def test_numbers_follow_the_exercise_and_not_the_page():
    number = checks.EXERCISES["softmax"].number
    assert teaching.renumbered("Exercise 9.9 (`softmax`)") == f"Exercise {number} (`softmax`)"
    assert teaching.renumbered("exercise 9.9 alone") == "exercise 9.9 alone"
    for unknown in ("exercise ? (`no_such_check`)", 'exercise ? ("no such words as these")'):
        with pytest.raises(LookupError):
            teaching.renumbered(unknown)


def test_home_work_counts_what_was_not_done_in_class():
    chapter = teaching.chapters()["03"]
    checker = checks.EXERCISES["softmax"]
    minutes = {e.number: e.minutes for e in chapter.exercises}
    page = (
        "Exercise ? (`softmax`)\n\n| Home work | Minutes |\n|---|---|\n"
        "| Read [chapter 03](x) | ? |\n| Hand in assignment 03, the rest | ? |\n"
        "| **Sum** | **?** |\n"
    )
    left = chapter.work - minutes[checker.number]
    rows = teaching.brought_up_to_date(page).splitlines()[-3:]
    assert rows == [
        f"| Read [chapter 03](x) | {chapter.read} |",
        f"| Hand in assignment 03, the rest | {left} |",
        f"| **Sum** | **{chapter.read + left}** |",
    ]


def test_every_check_has_a_section_and_a_question():
    hints = tomllib.loads((teaching.TEACH / "hints.toml").read_text("utf-8"))
    assert set(hints) == set(checks.EXERCISES)
    for name, question in hints.items():
        assert question.rstrip(".").count("?") >= 1, f"{name}: a question is wanted"
        assert f"({teaching.target(name)})=" in PAGES["wrong_answers.md"]


def test_no_pair_of_wrong_ideas_and_none_twice():
    listed = re.findall(r"^- \*\*(.+?):\*\* (.*)$", PAGES["wrong_answers.md"], re.MULTILINE)
    assert len(listed) > 100 and not [key for key, _ in listed if "+" in key]
    sections = PAGES["wrong_answers.md"].split("\n### ")
    for section in sections[1:]:
        lines = [line for line in section.splitlines() if line.startswith("- **")]
        assert len(lines) == len(set(lines)), section.splitlines()[0]


# --- what the pages name exists -------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_links_to_chapters_lead_to_a_heading(name):
    links = re.findall(r"notebooks/(\w+)\.ipynb(?:#([^)]+))?\)", PAGES[name])
    for stem, anchor in links:
        assert stem in NOTEBOOKS, stem
        assert not anchor or anchor in {teaching.slug(h) for h in headings(stem)}, (stem, anchor)


@pytest.mark.parametrize("name", PLANS)
def test_slides_are_named_by_headings(name):
    found = 0
    for group in re.findall(r"\(Slides ([^)]*)\)", PAGES[name]):
        for number, rest in re.findall(r"(\d\d), ((?:\"[^\"]+\"(?: to | and )?)+)", f"{group}"):
            stem = next(stem for stem in NOTEBOOKS if stem.startswith(number))
            for heading in re.findall(r'"([^"]+)"', rest):
                assert heading in headings(stem), (number, heading)
                found += 1
    assert found > 20


@pytest.mark.parametrize("name", WRITTEN)
def test_every_exercise_is_named_so_that_its_number_can_follow(name):
    plain = teaching.NAMED.sub("", WRITTEN[name])
    assert re.findall(r"\b[Ee]xercises? \d+\.\d+", plain) == []


def test_sections_of_the_discussion_cover_every_chapter():
    numbers = re.findall(r"^## Chapter (\d\d)", PAGES["discussion.md"], re.MULTILINE)
    assert numbers == list(teaching.chapters())
    for part in PAGES["discussion.md"].split("\n## ")[1:]:
        assert 2 <= part.count("*A good answer*") <= 3, part[:40]
        assert part.count("*A good answer*") == part.count("** Look at "), part[:40]


def decimals(text):
    return set(re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", re.sub(r"\]\([^)]*\)", "", text)))


def said(stem):
    return printed(stem) + "\n".join(cell.source for cell in cells(stem, "markdown"))


def test_numbers_of_the_discussion_are_the_chapters():
    for part in PAGES["discussion.md"].split("\n## Chapter ")[1:]:
        stem = next(stem for stem in NOTEBOOKS if stem.startswith(part[:2]))
        assert decimals(part) - decimals(said(stem)) == set(), stem


def test_numbers_of_the_plan_are_some_chapters():
    text = teaching.NAMED.sub("", PAGES[PLANS[0]])
    assert decimals(text) - set.union(*(decimals(said(stem)) for stem in NOTEBOOKS)) == set()


def test_nothing_is_left_open():
    for name, text in PAGES.items():
        assert not re.search(r"TODO|FIXME|XXX|WHEELS|\| \?", text), name


# --- minutes --------------------------------------------------------------------------------------


def tables(text, head):
    """The rows below each table head, as lists of cells."""
    for block in re.findall(rf"^{re.escape(head)}\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE):
        yield [[cell.strip() for cell in row.strip("|").split("|")] for row in block.splitlines()]


def minute(clock):
    hours, minutes = clock.split(":")
    return 60 * int(hours) + int(minutes)


@pytest.mark.parametrize(("name", "sessions", "length"), [(PLANS[0], 8, 90), (PLANS[1], 1, 480)])
def test_minutes_of_a_session_add_up(name, sessions, length):
    found = list(tables(PAGES[name], "| From | Minutes | Activity |"))
    assert len(found) == sessions
    for *rows, total in found:
        assert total[:2] == ["**Sum**", f"**{length}**"]
        assert sum(int(row[1]) for row in rows) == length
        for row, following in zip(rows, rows[1:], strict=False):
            assert minute(row[0]) + int(row[1]) == minute(following[0]), row


@pytest.mark.parametrize("name", PLANS)
def test_an_exercise_in_class_has_the_minutes_it_needs(name):
    needed = {e.number: e.minutes for c in teaching.chapters().values() for e in c.exercises}
    for rows in tables(PAGES[name], "| From | Minutes | Activity |"):
        for _, minutes, activity in rows:
            named = [teaching.number_of(match) for match in teaching.NAMED.finditer(activity)]
            assert int(minutes.strip("*")) >= sum(needed[number] for number in named), activity


def test_home_work_is_bearable():
    found = list(tables(PAGES[PLANS[0]], "| Home work | Minutes |"))
    assert len(found) == 8
    for *rows, total in found:
        assert sum(int(row[1]) for row in rows) == int(total[1].strip("*")) <= 200


# --- the exam: points -----------------------------------------------------------------------------

QUESTION = re.compile(
    r"^### (\d+)\. (.+?) \((\d+) points, (explain|compute|find the fault|interpret|design), "
    r"chapters? ([\d and]+)\)$",
    re.MULTILINE,
)


def questions():
    parts = QUESTION.split(PAGES["exam.md"])[1:]
    return [tuple(parts[at : at + 6]) for at in range(0, len(parts), 6)]


def test_every_rubric_adds_up():
    assert [int(q[0]) for q in questions()] == list(range(1, len(questions()) + 1))
    assert len(questions()) == len(re.findall(r"^### ", PAGES["exam.md"], re.MULTILINE)) >= 20
    for number, _, points, _, _, body in questions():
        (rows,) = tables(body, "| Points | For |")
        assert sum(int(row[0]) for row in rows) == int(points), number
        assert "*Typical:*" in body, number


def test_the_paper_has_ninety_points():
    points = {q[0]: int(q[2]) for q in questions()}
    (rows,) = tables(PAGES["exam.md"], "| Question | Points |")
    assert rows[-1] == ["**Sum**", "**90**"]
    assert all(points[number] == int(given) for number, given in rows[:-1])
    assert sum(int(given) for _, given in rows[:-1]) == 90
    left_out = re.search(r"leave out questions ([\d, and]+)\.", PAGES["exam.md"])[1]
    assert sum(points[number] for number in re.findall(r"\d+", left_out)) == 30
    assert {number for number, _ in rows[:-1]} >= set(re.findall(r"\d+", left_out))


def test_quoted_outputs_are_the_chapters_own():
    for number, _, _, kind, chapter, body in questions():
        if kind == "interpret":
            stem = next(stem for stem in NOTEBOOKS if stem.startswith(chapter))
            lines = {line.rstrip() for line in printed(stem).splitlines()}
            quoted = re.findall(r"```text\n(.*?)```", body, re.DOTALL)[0].splitlines()
            assert [line for line in quoted if line.rstrip() not in lines] == [], number


# --- the exam: numbers ----------------------------------------------------------------------------


def body(number):
    return next(q[5] for q in questions() if q[0] == str(number))


def says(number, *values):
    """Each value stands in the question's rubric, letter by letter."""
    rubric = body(number).split(":::{dropdown} Rubric")[1].replace("−", "-")
    missing = [value for value in values if value not in rubric]
    assert not missing, (number, missing)


def close(found, wanted, tolerance=5e-4):
    torch.testing.assert_close(torch.as_tensor(found, dtype=torch.float64),
                               torch.as_tensor(wanted, dtype=torch.float64),
                               atol=tolerance, rtol=0)  # fmt: skip


def test_question_6_attention():
    q = torch.tensor([[2.0, 0, 0, 0]])
    k = torch.tensor([[math.log(6), 0, 0, 0], [math.log(3), 0, 0, 0], [0.0, 1, 1, 1]])
    v = torch.tensor([[10.0, 0], [0, 10], [10, 10]])
    out, w = scaled_dot_product_attention(q, k, v)
    close(w[0], [0.6, 0.3, 0.1])
    close(out[0], [7, 4])
    masked, w_masked = scaled_dot_product_attention(q, k, v, torch.tensor([[True, True, False]]))
    close(w_masked[0], [2 / 3, 1 / 3, 0])
    close(masked[0], [6.67, 3.33], 5e-3)
    late = w * torch.tensor([1.0, 1, 0])
    close((late @ v)[0], [6, 3])
    close(late.sum(), 0.9)
    close((q @ k.T).softmax(-1)[0], [0.78, 0.20, 0.02], 5e-3)
    says(6, "0.6, 0.3, 0.1", "(7, 4)", "(6.67, 3.33)", "(6, 3)", "0.9", "36/46, 9/46, 1/46")


def test_question_7_norms():
    x = torch.tensor([1.0, 1, 1, 5], dtype=torch.float64)
    close(LayerNorm(4, eps=1e-12).double()(x), [-0.577, -0.577, -0.577, 1.732])
    close(RMSNorm(4, eps=1e-12).double()(x), [0.378, 0.378, 0.378, 1.890])
    close((x - x.mean()) / x.std(), [-0.5, -0.5, -0.5, 1.5])
    close([x.mean(), x.var(correction=0), x.square().mean(), x.var()], [2, 3, 7, 4])
    says(7, "(-0.577, -0.577, -0.577, 1.732)", "(0.378, 0.378, 0.378, 1.890)",
         "(-0.5, -0.5, -0.5, 1.5)")  # fmt: skip


def test_question_8_parameters():
    def model(heads):
        made = TransformerEncoder(10_000, 128, heads, 512, 3, norm="pre")
        return sum(p.numel() for p in made.parameters())

    assert model(4) == model(8) == 1_875_072 == 1_280_000 + 3 * 198_272 + 256
    assert 198_272 == 66_048 + 131_712 + 512
    assert round(100 * 1_280_000 / 1_875_072) == 68
    assert 1_280_000 + 3 * (4 * 128**2 + 2 * 128 * 512) == 1_869_824
    says(8, "1,280,000", "66,048", "131,712", "198,272", "1,875,072", "68 %", "1,869,824")


def test_question_9_softmax_backward():
    scores = torch.tensor([0.5, 0.25, 0.25]).log().requires_grad_()
    (scores.softmax(-1) * torch.tensor([1.0, 0, 0])).sum().backward()
    close(scores.grad, [0.25, -0.125, -0.125])
    says(9, "(0.25, -0.125, -0.125)", "(0, 0, 0)", "(0.25, 0, 0)")


def test_question_10_schedule():
    close([noam_rate(step, 256, 1600) for step in (400, 1600, 6400)],
          [0.000391, 0.00156, 0.000781], 5e-6)  # fmt: skip
    close(noam_rate(6400, 256, 6400) / noam_rate(1600, 256, 1600), 0.5)
    close(256**-0.5 * max(400**-0.5, 400 * 1600**-1.5), 0.003125)
    says(10, "0.000391 at 400, 0.00156 at 1600, 0.000781 at 6400", "halved", "0.003125")


def test_question_11_clocks():
    p = torch.arange(400, dtype=torch.float64)
    table = torch.stack([p.sin(), p.cos(), (p / 100).sin(), (p / 100).cos()], dim=1)
    close(table.norm(dim=1), torch.full((400,), math.sqrt(2)))
    offset = p[:, None] - p
    close(table @ table.T, offset.cos() + (offset / 100).cos())
    assert (table[3, :2] - table[4, :2]).norm() > 10 * (table[3, 2:] - table[4, 2:]).norm()
    assert (table[3, 2:] - table[47, 2:]).norm() > 10 * (table[3, :2] - table[47, :2]).norm()


def test_question_12_variance():
    draw = torch.randn(2, 200_000, 64)
    scores = (draw[0] * draw[1]).sum(-1)
    close(scores.var() / 64, 1, 0.02)
    close((scores / 2).var() / 64, 1 / 4, 0.01)
    close((scores / 64).var() * 64, 1, 0.02)
    says(12, "64 · 1/4 / 64 = 1/4", "64 / 64² = 1/64")


def test_question_13_accuracy():
    close([(3 + 4) / (4 + 16), (3 / 4 + 4 / 16) / 2], [0.35, 0.5])
    says(13, "7/20 = 0.35", "= 0.5")


def test_question_14_softmax_twice():
    loss = F.cross_entropy(torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([0]))
    close(loss, 0.744)
    close([math.exp(-1), 1 + 3 * math.exp(-1), math.log(2.104)], [0.368, 2.104, 0.744])
    says(14, "ln 2.104 = 0.744")


def test_question_15_work():
    d, length = 128, 256
    assert 16 * d**2 == 8 * d**2 + 4 * length * d
    assert 4 * length * d != 16 * d**2 and 4 * (4 * d) * d == 16 * d**2
    says(15, "L = 2d = 256", "8 d² of 12 d²", "L = 4d")


# --- the exam: faults -----------------------------------------------------------------------------


def piece(number):
    """The names that the code of a question defines."""
    code = re.search(r"```python\n(.*?)```", body(number), re.DOTALL)[1]
    names = {"torch": torch, "nn": nn, "F": F, "math": math}
    exec(compile(code, f"question {number}", "exec"), names)
    return names


def test_question_16_columns_add_up_to_1():
    q = torch.randn(2, 5, 4)
    _, weights = piece(16)["attention"](q, torch.randn(2, 5, 4), q)
    close(weights.sum(1), torch.ones(2, 5))
    assert (weights.sum(2) - 1).abs().max() > 0.01


def test_question_17_a_head_is_a_stretch_of_tokens():
    numbers = torch.arange(4.0).repeat_interleave(8).view(1, 4, 8)
    wrong = piece(17)["split"](numbers, 4)
    right = numbers.view(1, 4, 4, 2).transpose(1, 2)
    assert wrong.shape == right.shape
    assert wrong[0, 0].unique().tolist() == [0]
    assert right[0, 0].unique().tolist() == [0, 1, 2, 3]


def test_question_18_the_count_does_not_grow():
    stack = piece(18)["Stack"]
    counts = {sum(p.numel() for p in stack(nn.Linear(3, 3), n).parameters()) for n in (1, 5)}
    assert counts == {12}


def test_question_19_only_padding_is_heard():
    softmax = piece(19)["masked_softmax"]
    keep_mask = torch.tensor([[True, True, False], [True, True, True]])
    weights = softmax(torch.randn(2, 3, 3), keep_mask)
    close(weights[0, :, 2], torch.ones(3))
    assert weights[1].isnan().all()


def test_question_20_the_neighbours_decide():
    encoder = TransformerEncoder(20, 8, 2, 16, 1).eval()
    vector = piece(20)["sentence_vector"]
    alone, padded = torch.tensor([[3, 4]]), torch.tensor([[3, 4, 0, 0]])
    assert (vector(encoder, alone) - vector(encoder, padded)).abs().max() > 0.01
    right = [masked_mean(encoder(ids), ids != 0) for ids in (alone, padded)]
    close(right[0], right[1].double(), 1e-5)


def test_question_21_nothing_moves():
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    code = re.search(r"```python\n(.*?)```", body(21), re.DOTALL)[1]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    batches = [(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))] * 2
    exec(code, {"F": F, "model": model, "optimizer": optimizer, "batches": batches})
    assert torch.equal(before, model.weight)


def test_question_22_each_sentence_has_a_code():
    positions = piece(22)["Positions"](torch.randn(10, 4))
    out = positions(torch.zeros(3, 5, 4))
    assert out.shape == (3, 5, 4)
    assert (out - out[:, :1]).abs().max() == 0 and (out[0] - out[1]).abs().max() > 0.01


# --- the self-check -------------------------------------------------------------------------------


def test_answers_of_the_self_check():
    answers = PAGES["index.md"].split(":::{dropdown} Answers")[1]
    assert (torch.zeros(3, 4) @ torch.zeros(4, 5)).shape == (3, 5)
    assert (torch.zeros(2, 1, 5) + torch.zeros(3, 1)).shape == (2, 3, 5)
    close(torch.tensor([1.0, 1, 1, 5]).var(correction=0), 3)
    close(3.01**2 - 3**2, 0.06, 1e-3)
    for said in ("1. (3, 5).", "2. (2, 3, 5):", "8. 2 and 3.", "10. About 0.06"):
        assert said in answers
