"""How long a test that could go on for ever goes on: short in `make test`, long in `make soak` (EBBLINE_SOAK=1)."""

from __future__ import annotations

import os
from typing import Final, TypeVar

T = TypeVar("T")
SOAK: Final = os.environ.get("EBBLINE_SOAK") == "1"


def effort(short: T, soak: T) -> T:
    """Rounds, seeds or examples of this run, or which of them."""
    return soak if SOAK else short
