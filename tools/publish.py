"""Set the repository's address everywhere it stands.

    python tools/publish.py https://github.com/you/repo
    python tools/publish.py --check    exit 1 if a place disagrees with _config.yml

The address has one home, ``repository: url:`` in ``_config.yml``. Everything else that holds it is
derived: the notebooks' generated cells, the citation, the package's metadata, the links of the
README and of the pages. Stored outputs are not touched and nothing is executed.
"""

import argparse
import re
import sys
from pathlib import Path

import yaml

import notebooks
from notebooks import COLAB, ROOT, book_address, colab_url, is_set

GITHUB = re.compile(r"https://github\.com/[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.-]*[A-Za-z0-9_-]")
SWITCHES = ("use_repository_button", "use_issues_button", "use_edit_page_button")
COLAB_LINK = re.compile(r"\[([^\]]*\bColab\b[^\]]*)\]\([^)\s]*/notebooks/(\w+)\.ipynb\)")


class Refused(ValueError):
    """The address, or a file that should hold it, is not as it must be."""


def cleaned(url: str) -> str:
    """The address in the form stored everywhere; raises ``Refused`` for any other kind."""
    address = url.strip().rstrip("/").removesuffix(".git")
    if not GITHUB.fullmatch(address):
        raise Refused(
            f"URL is {url!r}, but must look like https://github.com/you/repo: "
            "the page of a GitHub repository, without anything after its name"
        )
    return address


def replaced(text: str, pattern: str, value: str, file: str) -> str:
    """``text`` with what follows the first group of ``pattern`` set to ``value``, exactly once."""
    text, count = re.subn(pattern, lambda m: m[1] + value, text, flags=re.MULTILINE)
    if count != 1:
        raise Refused(f"{file}: expected one place like {pattern!r}, found {count}")
    return text


def new_config(text: str, address: str) -> str:
    """``_config.yml`` with the address, and with the buttons on if the address is real."""
    on = is_set(address)
    text = replaced(text, r"^(repository:\n(?:[ #].*\n)*?  url: +)\S+", address, "_config.yml")
    text = replaced(text, r"^(  colab_url: +)\S+", COLAB if on else '""', "_config.yml")
    for switch in SWITCHES:
        text = replaced(text, rf"^(  {switch}: +)\w+", str(on).lower(), "_config.yml")
    assert yaml.safe_load(text)["repository"]["url"] == address
    return text


def new_page(text: str, old: str, address: str, branch: str) -> str:
    """A Markdown page with the old address replaced and each Colab link on its own notebook."""
    whole = r"(?<!URL=)" + re.escape(old) + r"(?![\w-]|\.\w)"  # the example command stays
    text = re.sub(whole, lambda m: address, text)
    return COLAB_LINK.sub(lambda m: f"[{m[1]}]({colab_url(m[2], address, branch)})", text)


def pages(root: Path) -> list[Path]:
    """Prose that may hold the address."""
    return sorted([*root.glob("*.md"), *(root / "book").rglob("*.md")])


def plan(address: str, root: Path = ROOT) -> dict[Path, str]:
    """Every file that holds the address, with its text for ``address``; writes nothing."""
    old, branch = book_address(root)
    texts = {root / "_config.yml": new_config((root / "_config.yml").read_text("utf-8"), address)}
    for file, keys in {
        "CITATION.cff": (r'^(repository-code: ")[^"]+', r'^(url: ")[^"]+'),
        "pyproject.toml": (r'^(Repository = ")[^"]+',),
    }.items():
        text = (root / file).read_text("utf-8")
        for key in keys:
            text = replaced(text, key, address, file)
        texts[root / file] = text
    for page in pages(root):
        texts[page] = new_page(page.read_text("utf-8"), old, address, branch)
    for name in notebooks.names(root):
        path = notebooks.stored_path(name, root)
        texts[path] = notebooks.synced(name, root, (address, branch))
    return texts


def publish(url: str, root: Path = ROOT) -> list[Path]:
    """Set the address; returns the changed files. A refusal leaves every file as it was."""
    texts = plan(cleaned(url), root)
    changed = [path for path, text in texts.items() if path.read_text("utf-8") != text]
    for path in changed:
        path.write_text(texts[path], "utf-8")
    return changed


def disagreements(root: Path = ROOT) -> list[str]:
    """Places that do not hold the address of ``_config.yml``."""
    address, _ = book_address(root)
    faults = []
    for path, text in plan(address, root).items():
        stored, name = path.read_text("utf-8"), path.relative_to(root)
        if stored != text:
            faults.append(f"{name} disagrees with the address in _config.yml")
        if is_set(address) and "encoder-book.invalid" in stored:
            faults.append(f"{name} still holds the address of the unpublished book")
    linked = [link[1] for link in COLAB_LINK.findall((root / "README.md").read_text("utf-8"))]
    if sorted(linked) != notebooks.names(root):
        faults.append("README.md does not link each notebook to Colab, once")
    return faults


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?", default="", help="https://github.com/you/repo")
    parser.add_argument("--check", action="store_true", help="only compare, change nothing")
    options = parser.parse_args(arguments)
    if options.check:
        faults = disagreements()
        print("\n".join(faults) or "all places hold the same address")
        return 1 if faults else 0
    try:
        changed = publish(options.url)
    except (Refused, notebooks.NotStorable) as error:
        print(error, file=sys.stderr)
        return 2
    for path in changed:
        print(f"changed {path.relative_to(ROOT)}")
    print(f"the book's address is {cleaned(options.url)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
