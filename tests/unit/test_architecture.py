"""Which module may import which, how long things may be, what is exported: read from the source.

Every rule is a function of source text, so that each is first shown to find a fault.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import encoder_lib

PACKAGE = Path(encoder_lib.__file__).parent
SOURCES = {  # a package by its own name ("widgets"), its modules as "widgets.mask"
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"):
    path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}  # fmt: skip
MODULES = {name: source for name, source in SOURCES.items() if name != "__init__"}

CORE = ["embedding", "masks", "attention", "feed_forward", "normalization", "encoder"]
MIDDLE = ["text", "datasets", "claims", "training", "diagnostics", "pretrained", "torch_parity"]
TOP = ["plotting", "widgets", "checks"]
OUTSIDE = {  # beyond torch, which every module may use
    "plotting": {"matplotlib", "cycler", "numpy"},
    "widgets": {"IPython", "ipywidgets"},
    "pretrained": {"safetensors", "tokenizers"},
    "training": {"tqdm"},
}
FUNCTION_LINES, CLASS_LINES = 30, 60


# --- The rules ------------------------------------------------------------------------------


def imports(source):
    """Names of all modules that the source imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = f"encoder_lib.{base}".rstrip(".")
            if base == "encoder_lib":
                found |= {f"encoder_lib.{alias.name}" for alias in node.names}
            else:
                found.add(base)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).split(".")[-1]
            if called in ("import_module", "__import__"):
                found.add(ast.literal_eval(node.args[0]) if node.args else "")
    return found


def may_import(name):
    """Modules of the library that the module ``name`` may import."""
    if name in CORE:
        return set(CORE[: CORE.index(name)])
    if name in MIDDLE:
        return {*CORE, *MIDDLE} - {name}
    return {*CORE, *MIDDLE} | {"widgets": {"plotting", "widgets"}, "checks": {"checks"}}.get(
        name, set()
    )


def import_faults(name, source):
    """What the module ``name`` imports against the rules, as sentences."""
    name = name.split(".")[0]  # a module of a package keeps the rules of the package
    if name not in CORE + MIDDLE + TOP:
        return [f"{name}: not in any layer; decide which"]
    standard = {"math"} if name in CORE else set(sys.stdlib_module_names)
    outside = standard | {"torch"} | OUTSIDE.get(name, set())
    faults = []
    for module in sorted(imports(source)):
        root, _, rest = module.partition(".")
        if root == "encoder_lib":
            if rest.split(".")[0] not in may_import(name):
                faults.append(f"{name} must not import {module}")
        elif root not in outside:
            faults.append(f"{name} must not import {root}")
    return faults


def public(body):
    """Functions and classes without a leading underscore."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in body if isinstance(node, kinds) and not node.name.startswith("_")]


def is_record(node):
    """A class of fields alone, such as a NamedTuple: the fields say what it holds."""
    if not isinstance(node, ast.ClassDef):
        return False
    return all(isinstance(part, ast.AnnAssign | ast.Expr) for part in node.body)


SAYS_SOMETHING = re.compile(r"\([A-Z][\w, =*.]*\)|\w*Error\b|[Rr]aises|Returns|\([a-z_]+,\)")


def says_enough(node, words):
    """Shapes, errors or the result are named, in words or as a return annotation."""
    return bool(SAYS_SOMETHING.search(words) or getattr(node, "returns", None))


def docstring_faults(source, inside=False):
    """Public functions and classes that do not say their shapes, what they return or raise.

    ``inside`` a private module of ``checks``, where a function is a wrong form of the exercise's, a
    docstring says which; the shapes are the exercise's own.
    """
    faults = []
    for node in public(ast.parse(source).body):
        words = ast.get_docstring(node) or ""
        members = public(node.body) if isinstance(node, ast.ClassDef) else []
        faults += [f"{node.name}.{m.name}: no docstring" for m in members
                   if not ast.get_docstring(m)]  # fmt: skip
        if isinstance(node, ast.ClassDef):
            made = [part for part in node.body if getattr(part, "name", "") == "__init__"]
            words += "".join(ast.get_docstring(part) or "" for part in made)
        if not words:
            faults.append(f"{node.name}: no docstring")
        elif not (inside or is_record(node) or says_enough(node, words)):
            faults.append(f"{node.name}: neither shapes nor what is returned or raised")
    return faults


def lines_of_code(node, source):
    """Lines of a definition without docstrings, comments and blank lines."""
    text = source.splitlines()
    code = {
        number
        for number in range(node.lineno, node.end_lineno + 1)
        if text[number - 1].strip() and not text[number - 1].strip().startswith("#")
    }
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = inner.body[0]
            if ast.get_docstring(inner, clean=False) is not None:
                code -= set(range(first.lineno, first.end_lineno + 1))
    return len(code)


def length_faults(source):
    """Functions and classes that are too long to be one idea."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            limit = CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES
            lines = lines_of_code(node, source)
            if lines > limit:
                faults.append(f"{node.name}: {lines} lines, at most {limit}")
    return faults


def public_names(source):
    """What a core module offers: its public definitions but the checks of arguments."""
    names = [node.name for node in public(ast.parse(source).body)]
    return {name for name in names if not name.startswith(("require_", "as_"))}


def loaded_by(statement, suspects):
    """Which of the suspects a fresh Python has loaded after the statement."""
    code = f"{statement}\nimport sys\nprint([m for m in {suspects!r} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=PACKAGE.parent,
    )  # fmt: skip
    return ast.literal_eval(run.stdout.splitlines()[-1])


# --- The rules find faults ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, source",
    [
        ("embedding", "from encoder_lib.masks import as_keep_mask"),
        ("masks", "import encoder_lib.attention"),
        ("masks", "from .attention import x"),
        ("masks", "from . import encoder"),
        ("masks", "from encoder_lib import TokenEmbedding"),
        ("masks", "import encoder_lib"),
        ("masks", "def f():\n    from encoder_lib import plotting"),
        ("masks", "import re"),
        ("attention", "import numpy as np"),
        ("attention", "from encoder_lib.encoder import Encoder"),
        ("encoder", "from encoder_lib.text import tokenize"),
        ("encoder", "from encoder_lib.training import train"),
        ("text", "import numpy"),
        ("text", "from numpy.random import default_rng"),
        ("datasets", "def f():\n    import numpy.random"),
        ("datasets", "import importlib\nimportlib.import_module('encoder_lib.plotting')"),
        ("datasets", "__import__('pandas')"),
        ("training", "from encoder_lib.plotting import plot_lines"),
        ("training", "from encoder_lib.checks import report"),
        ("training", "import matplotlib.pyplot as plt"),
        ("checks", "from encoder_lib import plotting"),
        ("checks", "import IPython"),
        ("plotting", "from encoder_lib.widgets import x"),
        ("plotting", "import ipywidgets"),
        ("widgets", "import matplotlib"),
        ("widgets", "import numpy"),
        ("widgets.mask", "import matplotlib"),
        ("widgets.mask", "from encoder_lib.checks import report"),
        ("masks", "from encoder_lib.widgets.mask import masked_weights"),
        ("helpers", "import math"),
    ],
)
def test_the_import_rule_finds(name, source):
    assert len(import_faults(name, source)) == 1


@pytest.mark.parametrize(
    "name, source",
    [
        ("embedding", "import math\nimport torch\nfrom torch import nn"),
        ("masks", "from encoder_lib.embedding import require_ids"),
        ("encoder", "from encoder_lib.normalization import LayerNorm\nfrom .masks import x"),
        ("text", "import re\nfrom encoder_lib.masks import keep_mask_from_lengths"),
        ("training", "from encoder_lib.text import batches\nfrom encoder_lib.encoder import x"),
        ("plotting", "import numpy\nfrom encoder_lib.diagnostics import attention_entropy"),
        ("widgets", "from encoder_lib import plotting\nfrom IPython.display import HTML"),
        ("widgets.mask", "import torch\nfrom encoder_lib.widgets._page import page"),
    ],
)
def test_the_import_rule_allows(name, source):
    assert import_faults(name, source) == []


@pytest.mark.parametrize(
    "source, fault",
    [
        ("def f():\n    return 1", "f: no docstring"),
        ("class C:\n    pass", "C: no docstring"),
        ('def f():\n    """Does it."""', "f: neither"),
        ('class C:\n    """Holds it (here)."""\n    def __init__(self):\n        pass',
         "C: neither"),
        ('class C:\n    """(B, L)."""\n    def m(self):\n        pass', "C.m: no docstring"),
        ("from typing import NamedTuple\nclass R(NamedTuple):\n    a: int", "R: no docstring"),
    ],
)  # fmt: skip
def test_the_docstring_rule_finds(source, fault):
    (found,) = docstring_faults(source)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    "source",
    [
        "def _f():\n    return 1",
        'def f() -> str:\n    """Does it."""',
        'def f():\n    """ids (B, L) to features."""',
        'def f():\n    """Raises: ValueError for nothing."""',
        'class C:\n    """Holds."""\n    def __init__(self):\n        """Raises: TypeError."""',
        'class R(NamedTuple):\n    """A pair."""\n    a: int\n    b: int',
    ],
)
def test_the_docstring_rule_allows(source):
    assert docstring_faults(source) == []


def test_the_length_rule_counts_code_alone():
    body = "\n".join(["    x = 1"] * (FUNCTION_LINES - 1))
    extra = '    """Words.\n\n    More words.\n    """\n\n    # a comment\n'
    assert length_faults(f"def f():\n{extra}{body}") == []
    (fault,) = length_faults(f"def f():\n{extra}{body}\n    y = 2")
    assert fault == f"f: {FUNCTION_LINES + 1} lines, at most {FUNCTION_LINES}"
    method = '    def m(self):\n        """Words."""\n' + "        x = 1\n" * 19
    assert length_faults("class C:\n" + method * 2) == []
    (fault,) = length_faults("class C:\n" + method * 3)
    assert fault.startswith("C: 61 lines")


def test_the_import_of_a_loaded_module_is_noticed():
    assert loaded_by("import json", ["json", "turtle"]) == ["json"]


def test_public_names_leave_out_checks_and_private_ones():
    source = "def f(): ...\ndef _g(): ...\ndef require_x(): ...\ndef as_y(): ...\nclass C: ..."
    assert public_names(source) == {"f", "C"}


# --- The library keeps them -----------------------------------------------------------------


def test_the_modules_of_the_first_chapters_are_there():
    assert {"embedding", "masks", "text", "datasets", "plotting", "widgets"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_imports_keep_the_direction(name):
    assert import_faults(name, MODULES[name]) == []


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_say_shapes_or_what_is_returned_or_raised(name):
    assert ast.get_docstring(ast.parse(MODULES[name]))
    assert docstring_faults(MODULES[name], inside=name.startswith("checks._")) == []


@pytest.mark.parametrize("name", MODULES)
def test_functions_and_classes_are_short(name):
    assert length_faults(MODULES[name]) == []


def test_importing_loads_no_plots_and_no_widgets():
    quiet = ["encoder_lib", *(f"encoder_lib.{n}" for n in MODULES if n in CORE + MIDDLE)]
    suspects = ["matplotlib", "IPython", "ipywidgets", "tokenizers",
                "encoder_lib.plotting", "encoder_lib.widgets"]  # fmt: skip
    assert loaded_by(f"import {', '.join(quiet)}", [*suspects, *quiet]) == quiet


def test_the_package_imports_the_core_alone():
    own = {name.removeprefix("encoder_lib.") for name in imports(SOURCES["__init__"])}
    assert own and own <= set(CORE)


def test_all_is_sorted_and_complete():
    names = encoder_lib.__all__
    assert names == sorted(set(names))
    offered = set().union(*(public_names(MODULES[m]) for m in CORE if m in MODULES))
    assert set(names) == offered
    for name in names:
        assert getattr(encoder_lib, name).__module__.startswith("encoder_lib.")


def test_the_promised_names_are_importable_from_the_package():
    promised = """
        keep_mask_from_ids keep_mask_from_lengths to_key_padding_mask from_key_padding_mask
        to_attention_mask TokenEmbedding SinusoidalPositionalEncoding LearnedPositionalEmbedding
        InputEmbedding
    """
    assert set(promised.split()) <= set(encoder_lib.__all__)


def test_the_version_is_that_of_the_package_metadata():
    project = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{encoder_lib.__version__}"\n' in project


# --- The checks keep the order of the chapters ------------------------------------------------

CHAPTERS = {  # the chapter in which a module is finished; modules of the frame belong to none
    "embedding": 2, "masks": 4, "attention": 5, "feed_forward": 6, "normalization": 7, "encoder": 9,
    "training": 10, "pretrained": 11, "diagnostics": 13,
    "checks._start": 0, "checks._embedding": 1, "checks._positions": 2, "checks._softmax": 3,
    "checks._attend": 3, "checks._attention": 3, "checks._masks": 4, "checks._heads": 5,
    "checks._feed_forward": 6, "checks._norms": 7, "checks._layers": 8, "checks._stack": 9,
    "checks._training": 10, "checks._pretrained": 11, "checks._reading": 12, "checks._clinic": 13,
}  # fmt: skip
SPELT_OUT = {("checks._attention", "attention")}  # one module holds chapter 03's function and 05's


def ahead(name, source):
    """What a check imports from chapters after its own."""
    later = {m for m in CHAPTERS if CHAPTERS[m] > CHAPTERS[name]}
    found = {module.removeprefix("encoder_lib.") for module in imports(source)}
    return sorted(m for m in found & later if (name, m) not in SPELT_OUT)


def test_every_check_has_its_chapter():
    frame = {"checks._answers", "checks._checker", "checks._compare", "checks._judge",
             "checks._learner", "checks._weights"}  # fmt: skip
    found = {name for name in MODULES if name.startswith("checks._")}
    assert found == frame | {name for name in CHAPTERS if name.startswith("checks._")}


@pytest.mark.parametrize("name", [name for name in CHAPTERS if name.startswith("checks._")])
def test_a_check_needs_no_later_chapter(name):
    assert ahead(name, MODULES[name]) == []


def test_a_check_that_looks_ahead_is_found():
    source = "from encoder_lib.encoder import EncoderLayer\nfrom encoder_lib.checks._heads import x"
    assert ahead("checks._masks", source) == ["checks._heads", "encoder"]
