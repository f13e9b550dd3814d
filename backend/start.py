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
# The brokers' loop lets go of the interpreter's lock at each call of the system and then waits this long for any thread
# that computes. Python's 5 ms a call make seconds of a start, while the control plane is imported on another thread.
SWITCH_INTERVAL_S: Final = 0.0005


def main() -> int:
    """The exit code of the backend; 0 when it was never told to begin."""
    # What imports make stays: looking through it again and again finds nothing, now or later.
    gc.disable()
    from backend.process import main as run

    gc.freeze()
    gc.enable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if WHEN_TOLD in sys.argv[1:]:
        told = sys.stdin.readline()
        if not told:
            return 0
        os.environ.update(json.loads(told))
    return run()


if __name__ == "__main__":
    sys.exit(main())
