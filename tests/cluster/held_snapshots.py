"""`ebbline broker`, but a snapshot stays half written as long as the file that is named in the environment exists.

So a kill can be placed in the middle of a write. Everything else is the product's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from backend.cli.entry import main
from backend.engine.controller.image.snapshot_images import snapshot_batches
from backend.engine.controller.metadata import snapshotter
from tests.waiting import wait_until

HOLD: Final = "EBBLINE_TEST_HOLD_SNAPSHOT"
HELD_MAX_S: Final = 600


def paused_batches(*args: Any, **more: Any) -> Iterator[bytearray]:
    """The batches; after the first, which is the header, the worker thread waits."""
    for batch in snapshot_batches(*args, **more):
        yield batch
        wait_until("the snapshot may be finished", lambda: not Path(os.environ[HOLD]).exists(), HELD_MAX_S)


if __name__ == "__main__":
    snapshotter.snapshot_batches = paused_batches  # type: ignore[attr-defined]  # what it calls is replaced
    main()
