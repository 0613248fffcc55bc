"""The rules of ``lints.py`` and of ``tools/notebooks.py``, applied to the book itself."""

import functools

import nbformat
import pytest
import yaml

import lints
import notebooks
import project

ROOT = project.ROOT
NAMES = notebooks.names()


@functools.cache
def read(name):
    return nbformat.read(notebooks.stored_path(name), as_version=4)


@functools.cache
def files():
    return project.files()


def none(faults):
    """Fail with the whole list, one fault a line."""
    assert not faults, "\n".join(faults)


def chapter(name):
    return int(name.split("_")[0])


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def nb(name):
    return read(name)


def test_there_are_notebooks():
    assert len(NAMES) >= 3
    assert NAMES[0].startswith("00_")


def test_stored_as_its_source_says_and_untouched(name):
    none(notebooks.check(name))


def test_no_stored_notebook_without_a_source():
    none(notebooks.orphans())


def test_stored_byte_for_byte_as_the_tool_writes_it(name, nb):
    assert notebooks.stored_path(name).read_text("utf-8") == notebooks.as_text(nb)


def test_enough_outputs_are_stored_to_compare(nb):
    cells = lints.code_cells(nb)
    assert sum(bool(cell.outputs) for cell in cells) >= len(cells) / 4
    assert any(lints.image_outputs(cell) for cell in cells)


@pytest.mark.parametrize(
    "rule",
    [
        lints.first_code_cell,
        lints.long_cells,
        lints.trailing_semicolons,
        lints.forbidden_code,
        lints.one_thread,
        lints.heading_faults,
        lints.maths_faults,
        lints.myst_only,
        lints.figure_faults,
        lints.metadata_faults,
    ],
    ids=lambda rule: rule.__name__,
)
def test_rule(rule, nb):
    none(rule(nb))


def test_links_exist_in_exact_case(nb):
    none(lints.link_faults(nb, set(files())))


def test_colab_link_opens_this_notebook_on_the_default_branch(name, nb):
    expected = notebooks.colab_url(name, *notebooks.book_address())
    none(lints.colab_faults(nb, expected))


def test_exercises_are_complete(name, nb):
    assert lints.exercises(nb)
    none(lints.exercise_faults(nb, chapter(name)))


def test_equation_numbers_are_unique_and_carry_the_chapter():
    tags = [(tag, chapter(name)) for name in NAMES for tag in lints.equation_tags(read(name))]
    none(lints.repeated([tag for tag, _ in tags]))
    none([tag for tag, number in tags if not tag.startswith(f"{number}.")])


def test_no_two_figures_have_the_same_description():
    none(lints.repeated([alt for name in NAMES for _, alt in lints.alt_texts(read(name))]))


def test_toc_and_files_agree():
    def entries(node):
        if isinstance(node, dict):
            yield from ([node["file"]] if "file" in node else [])
            for value in node.values():
                yield from entries(value)
        elif isinstance(node, list):
            for item in node:
                yield from entries(item)

    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    listed = [toc["root"], *entries(toc)]
    existing = {path.rsplit(".", 1)[0] for path in files() if path.endswith((".md", ".ipynb"))}
    none([entry for entry in listed if entry not in existing])
    none(lints.repeated(listed))
    none([n for n in NAMES if f"notebooks/{n}" not in listed])


def test_no_two_files_differ_in_case_only():
    none(lints.case_collisions(files()))


def test_library_cells_are_the_library():
    library = lints.library_definitions(ROOT)
    assert any(lints.library_cells(read(name)) for name in NAMES)
    none([f for name in NAMES for f in lints.library_faults(read(name), library)])


def test_each_chapter_uses_only_what_is_built_or_borrowed():
    modules = {path.stem for path in (ROOT / "encoder_lib").glob("*.py")}
    available, faults = set(), []
    for name in NAMES:
        found = lints.chapter_order_faults(read(name), available, modules)
        faults += [f"{name} {fault}" for fault in found]
        available |= lints.built(read(name))
    none(faults)
