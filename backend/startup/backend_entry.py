"""Entry point of the processes that run brokers: imports them without pauses of the garbage collector, then runs them.

Without an argument the backend of `ebbline up`. With ``--wait-for-start`` it waits, imported, for one line on its
standard input: JSON of variables to add to its environment. So `ebbline up` has it imported while it still checks
what may refuse a start; the end of the input means that something did. With ``--broker FILE`` one broker with the
properties of a file.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from backend.runtime.gc_tuning import GC_THRESHOLDS, SWITCH_INTERVAL_S
from backend.runtime.private_files import keep_files_private

WAIT_FOR_START: Final = "--wait-for-start"
ONE_BROKER: Final = "--broker"


@contextmanager
def quick_import() -> Iterator[None]:
    """For the imports of a process that runs brokers."""
    # Objects made by imports stay: looking through it again and again finds nothing, now or later.
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        sys.setswitchinterval(SWITCH_INTERVAL_S)


def main() -> int:
    """The exit code of the backend, or of the broker; 0 when its input ended before the line that begins it."""
    keep_files_private()
    arguments = sys.argv[1:]
    if arguments[:1] == [ONE_BROKER]:
        with quick_import():
            from backend.engine.cluster import run_broker
        return run_broker(arguments[1])
    with quick_import():
        from backend.startup.backend_process import main as run
    if WAIT_FOR_START in arguments:
        line = sys.stdin.readline()
        if not line:
            return 0
        os.environ.update(json.loads(line))
    return run()


if __name__ == "__main__":
    sys.exit(main())
