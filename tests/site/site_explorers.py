"""Every interactive figure of a page, whatever it shows: does each of its controls do something?

A figure is an element of class ``eb-pe`` that is no quiz; its controls are native ranges and
radio buttons.
"""

import re

import nbformat

ROOTS = ".eb-pe:not([data-quiz])"
CALL = re.compile(r"^(?:\w+\.)?(\w+_explorer|attention_grid)\(", re.MULTILINE)

# What a figure shows: its words and where its marks stand, without the controls' own state.
SHOWN = """root => root.querySelector(".eb-pe-readout").innerText
  + Array.from(root.querySelectorAll("svg"), e => e.outerHTML).join("")"""


def still_controls(page):
    """Controls that no key press brings to life, and figures that sleep, as sentences."""
    faults = []
    for root in page.locator(ROOTS).all():
        name = root.get_attribute("id")
        if root.get_attribute("data-ready") is None or root.locator(".eb-pe-asleep").is_visible():
            faults.append(f"{name}: asleep")
            continue
        controls = root.locator("input[type=range], input[type=radio]:checked").all()
        if not controls:
            faults.append(f"{name}: no control")
        for control in controls:
            if (fault := _still(root, control)) is not None:
                faults.append(f"{name}: {fault}")
    return faults


def _still(root, control):
    """What one control fails to do, or None; keys lead to both neighbours of its value."""
    what = control.get_attribute("data-name")
    handle = control.element_handle()  # what is checked changes with the first key
    for key in ("ArrowRight", "ArrowLeft"):
        before = root.evaluate(SHOWN), root.locator(".eb-pe-readout").inner_text()
        handle.press(key)
        after = root.evaluate(SHOWN), root.locator(".eb-pe-readout").inner_text()
        if before[0] != after[0]:
            return None if before[1] != after[1] else f"{what} changes the drawing, not the words"
    return f"{what} changes nothing"


def explorer_calls(notebook):
    """Names of the explorers that a stored notebook (path) shows, one for each call."""
    book = nbformat.read(notebook, as_version=4)
    code = [cell.source for cell in book.cells if cell.cell_type == "code"]
    return [name for source in code for name in CALL.findall(source)]
