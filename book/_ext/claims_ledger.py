"""The ledger of claims: what the notebooks measured, joined with ``book/claims.toml``.

``encoder_lib.claims.record`` prints one line per measurement and the notebooks store it.
``{claims-ledger}`` reads these lines and makes the page; the cells they stand in get anchors, so
that every number leads to the cell that computes it. ``faults`` says what does not fit together.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from docutils.statemachine import StringList
from pybtex.database import parse_file
from pybtex.richtext import Text
from sphinx.addnodes import pending_xref
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)
CLAIMS, BIBLIOGRAPHY = "book/claims.toml", "book/references.bib"
LINE = re.compile(
    r"^claim (?P<claim>\S+) · (?P<what>.+?) (?P<sign>[=<]) (?P<value>\S+)(?: (?P<unit>[^(]+?))?"
    r" \(bound (?P<low>\S+) to (?P<high>\S+)\)$",
    re.MULTILINE,
)
VERDICTS = {
    "true": "holds here as people say it",
    "condition": "holds under a condition that is named, and fails without it",
    "imprecise": "something is right about it; the words say more, or something else",
    "false": "what was measured contradicts it",
}
SHOWN = {**{verdict: verdict for verdict in VERDICTS}, "condition": "true under a condition"}
KEYS = {"id", "claim", "said", "verdict", "words", "sources", "against"}


class Record(NamedTuple):
    """One measurement: the line that a cell prints, all parts as text, and where it stands."""

    claim: str
    what: str
    sign: str
    value: str
    unit: str
    low: str
    high: str
    doc: str
    cell: int
    anchor: str


# --- reading ----------------------------------------------------------------------------------


def number(text):
    """``"10,839,040"`` as a float."""
    return float(text.replace(",", ""))


def streams(notebook):
    """``(index of the cell, text)`` of what the cells of a stored notebook print."""
    for index, cell in enumerate(json.loads(Path(notebook).read_text("utf-8"))["cells"]):
        texts = [out["text"] for out in cell.get("outputs", []) if out.get("name") == "stdout"]
        yield index, "".join("".join(text) for text in texts)


def records(root):
    """Every measurement that the notebooks in ``root/notebooks`` store, in the book's order."""
    found, places = [], {}
    for path in sorted(Path(root, "notebooks").glob("*.ipynb")):
        for index, text in streams(path):
            for match in LINE.finditer(text):
                parts = {key: (part or "").strip() for key, part in match.groupdict().items()}
                of_claim = places.setdefault(parts["claim"], [])
                if (path.stem, index) not in of_claim:
                    of_claim.append((path.stem, index))
                place = of_claim.index((path.stem, index))
                anchor = f"claim-{parts['claim'].lower()}" + (f"-{place + 1}" if place else "")
                found.append(Record(**parts, doc=path.stem, cell=index, anchor=anchor))
    return found


def entries(root):
    """What ``book/claims.toml`` says about each claim, in its order."""
    return tomllib.loads(Path(root, CLAIMS).read_text("utf-8")).get("claim", [])


def sources(root):
    """``{key: "Vaswani et al. (2017)"}`` for every entry of the bibliography."""
    entries = parse_file(str(Path(root, BIBLIOGRAPHY)), bib_format="bibtex").entries
    return {key: source_name(entry) for key, entry in entries.items()}


def source_name(entry):
    """Authors and year as the chapters write them."""
    people = entry.persons.get("author") or entry.persons.get("editor") or []
    names = [str(Text.from_latex(" ".join(p.prelast_names + p.last_names))) for p in people]
    who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{who or entry.fields['title']} ({entry.fields.get('year', 'no year')})"


# --- what does not fit together ---------------------------------------------------------------


def faults(claims, measured, keys):
    """Sentences about entries, records and sources that do not agree; empty when all do."""
    ids = [claim.get("id", "?") for claim in claims]
    found = [f"{i}: two entries" for i in sorted(set(ids)) if ids.count(i) > 1]
    found += [f"{r.claim}: measured in {r.doc}, but {CLAIMS} has no entry" for r in measured
              if r.claim not in ids]  # fmt: skip
    for claim in claims:
        mine = [record for record in measured if record.claim == claim.get("id")]
        found += entry_faults(claim, keys) + record_faults(claim, mine)
    return found


def entry_faults(claim, keys):
    """What is wrong with an entry by itself."""
    name, missing = claim.get("id", "?"), sorted(KEYS - set(claim))
    found = [f"{name}: lacks {key}" for key in missing]
    found += [f"{name}: has an unknown {key}" for key in sorted(set(claim) - KEYS)]
    if claim.get("verdict") not in VERDICTS:
        found.append(f"{name}: the verdict is none of {', '.join(VERDICTS)}")
    unknown = [source for source in claim.get("sources", []) if source not in keys]
    return found + [f"{name}: {source} is not in {BIBLIOGRAPHY}" for source in unknown]


def record_faults(claim, mine):
    """What is wrong between an entry and its measurements."""
    name, against = claim.get("id", "?"), claim.get("against", {})
    whats = [record.what for record in mine]
    found = [] if mine else [f"{name}: no cell measures it"]
    found += [f"{name}: no cell measures '{what}'" for what in against if what not in whats]
    for record in mine:
        label = f"{name}: '{record.what}'"
        if whats.count(record.what) > 1:
            found.append(f"{label} is measured twice")
        if record.what not in against:
            found.append(f"{label}: the entry does not say which value would contradict")
        elif number(record.low) <= against[record.what] <= number(record.high):
            found.append(f"{label}: the bound also holds for the opposite, {against[record.what]}")
        if not number(record.low) <= number(record.value) <= number(record.high):
            found.append(f"{label}: {record.value} is outside {record.low} to {record.high}")
        if "." in record.value and record.value in re.findall(r"\d[\d.,]*\d", claim["words"]):
            found.append(f"{label}: the entry repeats the number {record.value}")
    return found


# --- the page ---------------------------------------------------------------------------------


class ClaimsLedger(SphinxDirective):
    """``{claims-ledger}``: how many claims have which verdict, then every claim by chapter."""

    def run(self):
        root = self.env.srcdir
        claims, measured, self.names = entries(root), records(root), sources(root)
        for path in (CLAIMS, BIBLIOGRAPHY, *(f"notebooks/{r.doc}.ipynb" for r in measured)):
            self.env.note_dependency(str(Path(root, path)))
        for fault in faults(claims, measured, self.names):
            LOG.warning("claims ledger: %s", fault, location=self.get_location())
        blocks = [self.summary(claims)]
        for doc in sorted({record.doc for record in measured}):
            block = [c for c in claims if self.chapter_of(c, measured) == doc]
            if block:
                blocks.append(self.section(doc, block, measured))
        return blocks

    @staticmethod
    def chapter_of(claim, measured):
        """The first notebook that measures the claim."""
        return next((record.doc for record in measured if record.claim == claim.get("id")), None)

    def summary(self, claims):
        """A list of the verdicts: what each means, how many claims have it, and which."""
        found = nodes.bullet_list("", classes=["eb-verdicts"])
        for verdict, meaning in VERDICTS.items():
            mine = [claim["id"] for claim in claims if claim.get("verdict") == verdict]
            words = nodes.Text(f" {len(mine)} of {len(claims)}: {meaning}.")
            ids = nodes.paragraph("", "", classes=["eb-verdict-ids"])
            for number, name in enumerate(mine):
                ids += nodes.Text(", " if number else "")
                ids += nodes.reference("", name, refid=name.lower(), internal=True)
            found += nodes.list_item("", nodes.paragraph("", "", badge(verdict), words), ids)
        return found

    def section(self, doc, claims, measured):
        """The claims of one chapter under a heading."""
        title = f"{doc[:2]} {title_of(Path(self.env.srcdir, 'notebooks', f'{doc}.ipynb'))}"
        block = nodes.section("", nodes.title("", title), names=[nodes.fully_normalize_name(title)])
        self.state.document.note_implicit_target(block, block)
        block += [self.card(claim, measured) for claim in claims]
        return block

    def card(self, claim, measured):
        """One claim: its verdict and words, what was measured, who says it, the source."""
        said = nodes.container("", *self.parsed(f"{claim['claim']}"), classes=["eb-claim-words"])
        head = nodes.paragraph("", "", badge(claim["verdict"]), nodes.Text(" "))
        head += nodes.inline("", claim["id"], classes=["eb-claim-id"])
        numbers = nodes.bullet_list("", classes=["eb-measured"])
        numbers += [self.measurement(r) for r in measured if r.claim == claim["id"]]
        foot = nodes.paragraph("", f"Said by {claim['said']}.", classes=["eb-claim-foot"])
        for number, key in enumerate(claim["sources"]):
            foot += nodes.Text(", " if number else " Source: ")
            foot += self.link("doc", "/book/bibliography", self.names[key])
        card = nodes.container("", head, said, *self.parsed(claim["words"]), numbers, foot)
        card["classes"] += ["eb-claim", f"eb-claim-{claim['verdict']}"]
        card["ids"].append(claim["id"].lower())
        return card

    def measurement(self, record):
        """What was measured, the number, its bound, and a link to the cell."""
        sign = "" if record.sign == "=" else "< "
        value = nodes.strong("", f"{sign}{record.value} {record.unit}".strip())
        bound = f"bound {record.low} to {record.high}"
        bound = f"exactly {record.low}" if record.low == record.high else bound
        bound = nodes.inline("", f"({bound})", classes=["eb-bound"])
        where = f"cell in {record.doc[:2]}".replace(" ", "\N{NO-BREAK SPACE}")
        link = self.link("ref", record.anchor, where)
        line = nodes.paragraph("", f"{record.what}: ")
        line += [value, nodes.Text(" "), bound, nodes.Text(", "), link]
        return nodes.list_item("", line)

    def link(self, kind, target, text):
        """A link to a document (``doc``) or to the anchor of a cell (``ref``)."""
        return pending_xref(
            "", nodes.inline("", text), refdomain="std", reftype=kind,
            reftarget=target, refdoc=self.env.docname, refexplicit=True, refwarn=True,
        )  # fmt: skip

    def parsed(self, text):
        """Markdown as nodes."""
        holder = nodes.Element()
        self.state.nested_parse(StringList([text], source=CLAIMS), 0, holder)
        return holder.children


def badge(verdict):
    """The verdict as a small label."""
    classes = ["eb-verdict", f"eb-verdict-{verdict}"]
    return nodes.inline("", SHOWN.get(verdict, "?"), classes=classes)


def title_of(notebook):
    """The first heading of a notebook."""
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        if title := re.search(r"^# (.+)", "".join(cell["source"])):
            return title[1].strip()
    return notebook.stem


# --- the cells --------------------------------------------------------------------------------


def add_anchors(app, doctree):
    """Give the cells of a notebook that measure a claim ids, and make them known as labels."""
    doc = app.env.docname
    if not doc.startswith("notebooks/"):
        return
    cells = {node["cell_index"]: node for node in doctree.findall(nodes.container)
             if node.get("nb_element") == "cell_code"}  # fmt: skip
    standard = app.env.get_domain("std")
    for record in records(app.srcdir):
        if f"notebooks/{record.doc}" == doc and record.anchor not in cells[record.cell]["ids"]:
            cells[record.cell]["ids"].append(record.anchor)
            standard.anonlabels[record.anchor] = doc, record.anchor


def setup(app):
    app.add_directive("claims-ledger", ClaimsLedger)
    app.connect("doctree-read", add_anchors)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
