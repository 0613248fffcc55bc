"""Scripts and templates that stand in the pages of a course, so that these load nothing."""

import functools
from importlib.util import find_spec
from pathlib import Path

from pygments.formatters import HtmlFormatter

TEMPLATES = Path(__file__).resolve().parent / "templates"
COLOURS = "a11y-high-contrast-light"  # the one of the site, from accessible-pygments


def package_folder(name: str) -> Path:
    """The folder of an installed package, found without importing it."""
    return Path(find_spec(name).submodule_search_locations[0])


def for_a_page(script: str) -> str:
    """A script that may stand in a page: what would end or hide a script element is written so
    that it means the same to JavaScript and nothing to HTML."""
    return script.replace("</script", r"<\/script").replace("<!--", r"\x3C!--")


@functools.cache
def mathjax() -> str:
    """MathJax with its fonts, for a page."""
    path = package_folder("sphinx-mathjax-offline") / "static/mathjax/tex-svg.js"
    return for_a_page(path.read_text("utf-8"))


def code_style(selector: str) -> str:
    """The colours of highlighted code inside ``selector``."""
    return HtmlFormatter(style=COLOURS, nobackground=True).get_style_defs(selector)
