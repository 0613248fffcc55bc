"""Bring the pages for teachers into agreement with the chapters and the checks.

    python tools/teaching.py            write them
    python tools/teaching.py --check    only say which pages are not up to date

``book/teach/wrong_answers.md`` is made completely, from ``encoder_lib.checks`` and the questions in
``book/teach/hints.toml``. In the other pages of the folder only these places are written anew:

* the tables between ``<!-- NAME:start -->`` and ``<!-- NAME:end -->``;
* the number in ``exercise 3.5 (`softmax`)``, found by the check's name, and in
  ``exercise 8.4 ("who makes the tokens alike")``, found by words of the statement;
* the minutes and the sum in the tables of home work.
"""

import argparse
import functools
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import nbformat

import exercises
from exercises import Exercise

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from encoder_lib import checks  # noqa: E402

TEACH = ROOT / "book" / "teach"
WRONG = TEACH / "wrong_answers.md"
OPTIONAL = {"08", "11", "12", "13"}
NAMED = re.compile(r"([Ee]xercise )(?:\d+\.\d+|\?) \((?:`(?P<name>\w+)`|\"(?P<words>[^\"]+)\")\)")
BLOCK = re.compile(r"(<!-- (\w+):start -->\n).*?(<!-- \2:end -->)", re.DOTALL)
READ = re.compile(r"(\| Read \[chapter (\d\d)\]\([^)]*\)[^|]*\| )(\d+|\?)( \|)")
HAND_IN = re.compile(r"(\| Hand in assignment (\d\d)[^|]*\| )(\d+|\?)( \|)")
HOME = re.compile(r"^\| Home work \| Minutes \|\n(?:\|.*\|\n)+", re.MULTILINE)
HEAD = """\
# Wrong answers and what they mean

This page is made from the checks that come with the exercises, so it lists what they really say. \
For each exercise: the question to ask a student who is stuck, the section to reread, and the \
wrong ideas that the check recognises, each with the sentence that the student sees. The check \
recognises an idea by what the code computes, not by how it looks.

Some faults can occur in every exercise, and the checks name them too:

- **The argument was changed.** The code works in place, so whoever called it finds other numbers \
there. Ask: *print your input before and after the call; are they the same?*
- **Another result the second time.** Usually dropout that is always on. Ask: *what is random in \
your function?*
- **Another shape, dtype or kind of result.** Ask: *which axes does the statement promise, and in \
which order?*
- **An error inside the code.** The report names the line. Ask: *what are the shapes just before \
that line?*
- **The values agree and the gradients do not.** Something was detached. Ask: *where does your \
code leave torch?*

"""


@dataclass(frozen=True)
class Chapter:
    """One chapter; ``read`` in minutes, ``run`` in seconds, ``quiz`` in questions."""

    number: str
    stem: str
    title: str
    needs: str
    read: int
    run: int
    quiz: int
    exercises: tuple[Exercise, ...]

    @property
    def link(self) -> str:
        """Number and title as a link from a page in ``book/teach``."""
        return f"[{self.number} {self.title}](../../notebooks/{self.stem}.ipynb)"

    @property
    def work(self) -> int:
        """Minutes for all exercises."""
        return sum(exercise.minutes for exercise in self.exercises)


def count_questions(number: str) -> int:
    """How many questions the quiz of a chapter has; 0 without a quiz."""
    path = ROOT / "encoder_lib" / "quizzes" / f"{number}.toml"
    return len(tomllib.loads(path.read_text("utf-8"))["questions"]) if path.is_file() else 0


def read_chapter(path: Path, seconds: dict[str, int]) -> Chapter:
    """One chapter from its stored notebook."""
    nb = nbformat.read(path, as_version=4)
    head = nb.cells[0].source
    return Chapter(
        number=path.name[:2],
        stem=path.stem,
        title=head.splitlines()[0].lstrip("# ").strip(),
        needs=re.search(r"\*You need:\* (.*?)\.? \*Time", head)[1],
        read=int(re.search(r"about (\d+) min to read", head)[1]),
        run=seconds[path.stem],
        quiz=count_questions(path.name[:2]),
        exercises=tuple(exercises.exercises(nb)),
    )


@functools.cache
def chapters() -> dict[str, Chapter]:
    """All chapters by number."""
    seconds = json.loads((ROOT / "notebooks" / "timings.json").read_text("utf-8"))
    found = (read_chapter(p, seconds) for p in sorted((ROOT / "notebooks").glob("*.ipynb")))
    return {chapter.number: chapter for chapter in found}


# --- tables ---------------------------------------------------------------------------------------


def in_hours(minutes: int) -> str:
    """Minutes as ``7 h 35 min``."""
    return f"{minutes // 60} h {minutes % 60:02d} min"


def workload() -> list[str]:
    """The table of minutes per chapter, with a sum for the core and one for all."""
    lines = ["| Chapter | Read | Run | Quiz | Exercises | Together |", "|---|---|---|---|---|---|"]
    for chapter in chapters().values():
        mark = "" if chapter.number in OPTIONAL else " **core**"
        all_in = chapter.read + chapter.quiz + chapter.work
        lines.append(
            f"| {chapter.link}{mark} | {chapter.read} min | {chapter.run} s "
            f"| {chapter.quiz} min | {len(chapter.exercises)}, {chapter.work} min | {all_in} min |"
        )
    core = [c for c in chapters().values() if c.number not in OPTIONAL]
    for name, found in (("Core", core), ("All", list(chapters().values()))):
        quiz, work = (sum(getattr(c, part) for c in found) for part in ("quiz", "work"))
        read, run = (sum(getattr(c, part) for c in found) for part in ("read", "run"))
        lines.append(
            f"| **{name}** | {in_hours(read)} | {run} s | {quiz} min "
            f"| {in_hours(work)} | {in_hours(read + quiz + work)} |"
        )
    return lines


def needs() -> list[str]:
    """The table of what each chapter builds on, in the chapters' own words."""
    lines = ["| Chapter | Needs |", "|---|---|"]
    return lines + [f"| {c.link} | {c.needs} |" for c in chapters().values()]


TABLES = {"workload": workload, "needs": needs}


# --- numbers in hand-written pages ----------------------------------------------------------------


def number_by_words(words: str) -> str:
    """The number of the exercise whose statement holds these words.

    Raises: LookupError unless there is exactly one.
    """
    every = (e for chapter in chapters().values() for e in chapter.exercises)
    found = [e.number for e in every if words.lower() in " ".join(e.statement.split()).lower()]
    if len(found) != 1:
        raise LookupError(f'"{words}" is in the statements of {len(found)} exercises: {found}')
    return found[0]


def number_of(match: re.Match) -> str:
    """The number of the exercise that a match of ``NAMED`` names.

    Raises: LookupError when no exercise, or more than one, fits.
    """
    if match["words"]:
        return number_by_words(match["words"])
    if match["name"] not in checks.EXERCISES:
        raise LookupError(f"encoder_lib.checks has no {match['name']}")
    return checks.EXERCISES[match["name"]].number


def renumbered(text: str) -> str:
    """The text with the number of each named exercise brought up to date."""
    return NAMED.sub(lambda m: m[0].replace(re.search(r"\d+\.\d+|\?", m[0])[0], number_of(m), 1),
                     text)  # fmt: skip


def left_for_home(number: str, done: set[str]) -> int:
    """Minutes of a chapter's exercises without those in ``done``."""
    return sum(e.minutes for e in chapters()[number].exercises if e.number not in done)


def timed(text: str) -> str:
    """The text with the minutes of home work, and their sums, brought up to date."""
    classes = HOME.sub("", text)
    done = {number_of(match) for match in NAMED.finditer(classes)}
    text = READ.sub(lambda m: f"{m[1]}{chapters()[m[2]].read}{m[4]}", text)
    text = HAND_IN.sub(lambda m: f"{m[1]}{left_for_home(m[2], done)}{m[4]}", text)
    return HOME.sub(lambda match: with_sum(match[0]), text)


def with_sum(table: str) -> str:
    """A table of home work with its last row added up."""
    *rows, last = table.rstrip("\n").split("\n")
    total = sum(int(row.split("|")[-2]) for row in rows[2:])
    return "\n".join([*rows, re.sub(r"\*\*(\d+|\?)\*\* \|$", f"**{total}** |", last), ""])


def brought_up_to_date(text: str) -> str:
    """A hand-written page with all that is generated in it made anew."""
    text = BLOCK.sub(lambda m: f"{m[1]}\n" + "\n".join(TABLES[m[2]]()) + f"\n\n{m[3]}", text)
    return timed(renumbered(text))


# --- wrong answers --------------------------------------------------------------------------------


def slug(heading: str) -> str:
    """The anchor that the site gives to a heading."""
    return re.sub(r"[^\w\u4e00-\u9fff\- ]", "", heading.strip().lower().replace(" ", "-"))


def target(name: str) -> str:
    """The label of an exercise's section on the page of wrong answers."""
    return f"wrong-{name.replace('_', '-')}"


def escaped(text: str) -> str:
    """A diagnosis as Markdown that shows it letter by letter; `code` stays code."""
    pieces = re.split(r"(`[^`]*`)", text)
    pieces[::2] = [re.sub(r"([*_\[\]<>$|\\])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces)


def idea(key: str, diagnosis: str) -> str:
    """One wrong idea as an entry of the list."""
    return f"- **{key.replace('_', ' ')}:** {escaped(diagnosis)}"


def reread(number: str, heading: str) -> str:
    """A link to a section of a chapter."""
    chapter = chapters()[f"{int(number.split('.')[0]):02d}"]
    return f"[{heading}](../../notebooks/{chapter.stem}.ipynb#{slug(heading)})"


def by_code(name: str, hints: dict[str, str]) -> list[str]:
    """The section of an exercise with code to hand in."""
    checker = checks.EXERCISES[name]
    title = f"### Exercise {checker.number}: {name.replace('_', ' ')}"
    lines = [f"({target(name)})=", title, ""]
    if name in hints:
        lines += [f"**Ask:** {hints[name]}", ""]
    lines += [
        f"**Check:** `checks.{name}`. **Reread:** {reread(checker.number, checker.reread)}",
        "",
    ]
    shown = [m for m in checker.misconceptions if "+" not in m.key]
    return [*lines, *dict.fromkeys(idea(m.key, m.diagnosis) for m in shown), ""]


def by_answer(number: str, entry: dict) -> list[str]:
    """The section of an exercise with a number or a word as its answer."""
    lines = [f"### Exercise {number}: {entry['name']}", ""]
    lines += [f"**Reread:** {reread(number, entry['reread'])}", ""]
    return lines + [idea(w["key"], w["diagnosis"]) for w in entry.get("wrong", [])] + [""]


def wrong_answers() -> str:
    """The whole page."""
    hints = tomllib.loads((TEACH / "hints.toml").read_text("utf-8"))
    sections = {c.number: by_code(name, hints) for name, c in checks.EXERCISES.items()}
    sections |= {number: by_answer(number, e) for number, e in checks.ANSWERS.items()}
    lines, open_chapter = [], ""
    for number in sorted(sections, key=lambda n: [int(part) for part in n.split(".")]):
        chapter = chapters()[f"{int(number.split('.')[0]):02d}"]
        if chapter.number != open_chapter:
            lines += [f"## Chapter {chapter.number}: {chapter.title}", ""]
            open_chapter = chapter.number
        lines += sections[number]
    return HEAD + "\n".join(lines)


# --- command line ---------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """Every page of the folder as it should be."""
    written = {p: brought_up_to_date(p.read_text("utf-8")) for p in sorted(TEACH.glob("*.md"))}
    return written | {WRONG: wrong_answers()}


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    wanted = pages()
    stale = [p for p in wanted if not p.is_file() or p.read_text("utf-8") != wanted[p]]
    for path in stale:
        print(f"{path.name}: {'run make teach' if options.check else 'written'}")
        if not options.check:
            path.write_text(wanted[path], "utf-8")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
