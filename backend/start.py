"""Entry point of the backend process: imports it without pauses of the garbage collector, then runs it.

With ``--when-told`` it waits, imported, for one line on its standard input: JSON of what to add to its environment. So
`ebbline up` has it imported while it still checks what may refuse a start. The end of the input means that it was.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Final

WHEN_TOLD: Final = "--when-told"


def main() -> int:
    """The exit code of the backend; 0 when it was never told to begin."""
    # What imports make stays: looking through it again and again finds nothing, now or later.
    gc.disable()
    from backend.process import main as run

    gc.freeze()
    gc.enable()
    if WHEN_TOLD in sys.argv[1:]:
        told = sys.stdin.readline()
        if not told:
            return 0
        os.environ.update(json.loads(told))
    return run()


if __name__ == "__main__":
    sys.exit(main())
