"""Interactive figures that need no kernel and no network.

Each function returns an ``IPython.display.HTML`` object: drawings and text that stand on their
own where scripts are stripped, and a script that lets the reader move them. Numbers are rounded
in one place; the same call gives the same string.
"""

from encoder_lib.widgets._page import decimal as _decimal
from encoder_lib.widgets.attention import attention_explorer
from encoder_lib.widgets.depth import depth_explorer
from encoder_lib.widgets.grid import attention_grid
from encoder_lib.widgets.mask import mask_explorer
from encoder_lib.widgets.positional import MAX_OFFSET, positional_encoding_explorer
from encoder_lib.widgets.quiz import quiz

__all__ = [
    "MAX_OFFSET",
    "_decimal",
    "attention_explorer",
    "attention_grid",
    "depth_explorer",
    "mask_explorer",
    "positional_encoding_explorer",
    "quiz",
]
