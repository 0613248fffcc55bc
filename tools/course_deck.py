"""Slides as single files: reveal.js, MathJax and the style stand in each, and nothing is loaded."""

import functools

from nbconvert import SlidesExporter
from nbformat import NotebookNode

from course_assets import TEMPLATES, code_style, for_a_page, mathjax, package_folder
from course_lecture import deck
from course_nbgrader import chapter_title


@functools.cache
def assets() -> dict[str, str]:
    """Style and scripts of every deck, by the name that the template gives them."""
    reveal = package_folder("sphinx_revealjs") / "_static/revealjs"
    own = TEMPLATES / "slides"
    style = [reveal / "dist/reset.css", reveal / "dist/reveal.css", own / "slides.css"]
    scripts = {
        "settings": own / "settings.js",
        "reveal": reveal / "dist/reveal.js",
        "notes": reveal / "plugin/notes/notes.js",
        "start": own / "start.js",
    }
    css = "\n".join(
        [*(path.read_text("utf-8") for path in style), code_style(".reveal .highlight")]
    )
    return {"css": css, "mathjax": mathjax()} | {
        name: for_a_page(path.read_text("utf-8")) for name, path in scripts.items()
    }


def slides(nb: NotebookNode) -> str:
    """The slides of a chapter as one HTML page."""
    exporter = SlidesExporter(
        template_name="slides",
        extra_template_basedirs=[str(TEMPLATES)],
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    resources = {"course": {**assets(), "title": chapter_title(nb)}}
    return exporter.from_notebook_node(deck(nb), resources=resources)[0]
