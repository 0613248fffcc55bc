"""One thread and one seed for every test: tiny tensors are slower, and less equal, on two."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def browser():
    """Chromium without a network, see ``site_browser.py``."""
    from site_browser import chromium_or_skip  # loads playwright, which few tests need

    with chromium_or_skip() as chromium:
        yield chromium


def pytest_collection_modifyitems(items):
    """The longest file first, so that the other worker never waits for it at the end."""
    items.sort(key=lambda item: item.path.name != "test_alone.py")
