"""The number of attempts of a test that could go on for ever: least in `make check`, most in `make soak`.

`make check` sets EBBLINE_CHECK=1, `make soak` EBBLINE_SOAK=1, and `make test` neither.
"""

from __future__ import annotations

import os
from typing import Final, TypeVar

T = TypeVar("T")
SOAK: Final = os.environ.get("EBBLINE_SOAK") == "1"
CHECK: Final = os.environ.get("EBBLINE_CHECK") == "1"


def effort(short: T, soak: T, *, check: T | None = None) -> T:
    """Rounds, seeds or examples of this run, or which of them; `make check` takes `short` where it has no `check`."""
    if SOAK:
        return soak
    return check if CHECK and check is not None else short
