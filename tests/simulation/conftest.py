"""The objects that a simulated world leaves behind are freed after its file."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def abandoned_worlds() -> Iterator[None]:
    """Crashed processes are abandoned as they stand: coroutines that never began, loops and files that nobody closed.

    They are collected here, without a warning, so that none of a later test's is blamed on them.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
