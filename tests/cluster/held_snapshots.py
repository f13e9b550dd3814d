"""`ebbline broker`, but a snapshot stays half written as long as the file that is named in the environment exists.

So a kill can be placed in the middle of a write. Everything else is the product's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from backend.cli.main import main
from backend.engine.controller import snapshotter
from backend.engine.controller.snapshot_images import snapshot_batches

HOLD: Final = "EBBLINE_TEST_HOLD_SNAPSHOT"


def held(*args: Any, **more: Any) -> Iterator[bytearray]:
    """The batches; after the first, which is the header, the worker thread waits."""
    for batch in snapshot_batches(*args, **more):
        yield batch
        while Path(os.environ[HOLD]).exists():
            time.sleep(0.02)


if __name__ == "__main__":
    with patch.object(snapshotter, "snapshot_batches", held):
        main()
