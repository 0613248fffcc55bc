"""Sphinx extension of the book: callouts, offline maths, the table of chapter times.

* ``Callouts`` turns the block quotes that notebooks use (``> **Key idea.** ...``) into admonitions.
* ``{chapter-times}`` makes the table of chapters with minutes to read and seconds to run.
* ``claims_ledger``, a file of its own beside this one, makes the ledger of claims.
* ``copy_mathjax`` puts MathJax into the site, so that a page asks no other host for anything.
* ``drop_source_maps`` removes the theme's source maps, a third of the site's weight.
"""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)

# Lead words of a block quote -> css class. Longer leads first where one begins another.
KINDS = {
    "key idea": "key-idea",
    "predict": "predict",
    "exercise": "exercise",
    "mind the condition": "condition",
    "misconception": "misconception",
    "borrowed": "borrowed",
    "note": "note",
    "warning": "warning",
    "tip": "tip",
}
TIMINGS = "notebooks/timings.json"


class Callouts(SphinxTransform):
    """``> **Kind.** text`` becomes an admonition with the classes ``callout eb-KIND``.

    A block quote whose first words are not a bold lead of a known kind stays a block quote.
    """

    default_priority = 210

    def apply(self, **kwargs):
        for quote in list(self.document.findall(nodes.block_quote)):
            lead = bold_lead(quote)
            kind = lead is not None and callout_kind(lead.astext())
            if kind:
                quote.replace_self(admonition_from(quote, lead, kind))


def callout_kind(text):
    """The css class for a lead such as ``Exercise 2.1``, or None when it is no callout."""
    words = text.strip().rstrip(".:").lower()
    return next((css for key, css in KINDS.items() if re.match(rf"{key}\b", words)), None)


def bold_lead(quote):
    """The ``strong`` node a block quote begins with, or None."""
    first = quote.children[0] if quote.children else None
    if not isinstance(first, nodes.paragraph):
        return None
    # MyST puts an empty Text node before a leading ``**``.
    while first.children and isinstance(first.children[0], nodes.Text) and not first[0].strip():
        first.pop(0)
    return first[0] if first.children and isinstance(first[0], nodes.strong) else None


def admonition_from(quote, lead, kind):
    """An admonition with the lead as title; ``(difficulty ...)`` after it joins the title."""
    first = quote[0]
    first.remove(lead)
    title = nodes.title("", "", *[child.deepcopy() for child in lead.children])
    if isinstance(title[-1], nodes.Text):
        title.replace(title[-1], nodes.Text(title[-1].rstrip(".:")))
    if first.children and isinstance(first[0], nodes.Text):
        aside = re.match(r"\s*(\([^()]*\))[.:]?\s*", first[0]) if kind == "exercise" else None
        if aside:
            title += [nodes.Text(" "), nodes.inline("", aside[1], classes=["eb-aside"])]
        rest = first[0][aside.end() :] if aside else first[0].lstrip()
        first.replace(first[0], nodes.Text(rest))
    body = [child for child in quote.children if child is not first or first.astext().strip()]
    return nodes.admonition("", title, *body, classes=["callout", f"eb-{kind}"])


class ChapterTimes(SphinxDirective):
    """``{chapter-times}``: every chapter of the book with its times.

    Both numbers are a tool's: the seconds stand in ``notebooks/timings.json``, the minutes in the
    words "about 35 min to read" of the notebook itself. What is missing is shown as a dash.
    """

    def run(self):
        docs = sorted(doc for doc in self.env.found_docs if doc.startswith("notebooks/"))
        times = [self.times(doc) for doc in docs]
        rows = [self.row(doc, time) for doc, time in zip(docs, times, strict=True)]
        head = [nodes.Text(words) for words in ("Chapter", "To read", "To run")]
        return [table(head, [*rows, total_row(times)])]

    def times(self, doc):
        """``(minutes, seconds)`` of one chapter, each a number or None."""
        stored, notebook = Path(self.env.srcdir, TIMINGS), Path(self.env.doc2path(doc))
        for path in (stored, notebook):
            self.env.note_dependency(str(path))
        seconds = json.loads(stored.read_text("utf-8")) if stored.is_file() else {}
        said = re.search(r"about (\d+) min to read", notebook.read_text("utf-8"))
        return int(said[1]) if said else None, seconds.get(notebook.stem)

    def row(self, doc, time):
        link = pending_xref(
            "", nodes.inline(), refdomain="std", reftype="doc", reftarget=f"/{doc}",
            refdoc=self.env.docname, refexplicit=False, refwarn=True,
        )  # fmt: skip
        return [link, *map(nodes.Text, in_words(time))]


def in_words(time):
    """``(35, 4)`` as ``("35 min", "4 s")``, with a dash for None."""
    minutes, seconds = time
    return (
        "–" if minutes is None else f"{minutes} min",
        "–" if seconds is None else f"{max(seconds, 1):.0f} s",
    )


def total_row(times):
    """The last row: sums, each only when every chapter has the number."""
    sums = [None if not times or None in part else sum(part) for part in zip(*times, strict=True)]
    cells = ["All chapters", *in_words(sums or (None, None))]
    return [nodes.strong("", cell) for cell in cells]


def table(head, rows):
    """A docutils table from lists of inline nodes."""
    group = nodes.tgroup("", *[nodes.colspec(colwidth=1) for _ in head], cols=len(head))
    group += nodes.thead("", table_row(head))
    group += nodes.tbody("", *[table_row(row) for row in rows])
    return nodes.table("", group, classes=["eb-times"])


def table_row(cells):
    return nodes.row("", *[nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells])


def copy_mathjax(app, exception):
    """Copy the one MathJax component the site uses, with its fonts, from the installed package."""
    if exception or app.builder.format != "html":
        return
    package = find_spec("sphinx-mathjax-offline").submodule_search_locations[0]
    source = Path(package, "static", "mathjax")
    target = Path(app.outdir, "_static", "mathjax")
    fonts = "output/chtml/fonts/woff-v2"
    shutil.copytree(source / fonts, target / fonts, dirs_exist_ok=True)
    shutil.copy(source / "tex-chtml.js", target)


def drop_source_maps(app, exception):
    """Delete ``*.map`` files; browsers ask for them only with developer tools open."""
    if exception or app.builder.format != "html":
        return
    for path in Path(app.outdir, "_static").rglob("*.map"):
        path.unlink()


def setup(app):
    app.add_transform(Callouts)
    app.add_directive("chapter-times", ChapterTimes)
    app.setup_extension("claims_ledger")
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", drop_source_maps)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
