"""The pipeline's sign of life for its supervisor."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path


class LivingStop(threading.Event):
    """The wish to stop; each wait for it is also a sign of life, the time of a file.

    Every loop of the pipeline waits for the stop, so a pipeline whose JVM no longer answers gives no more signs.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def wait(self, timeout: float | None = None) -> bool:
        """As the base class's. A folder that is gone makes no sign and no error."""
        with suppress(OSError):
            self._file.touch()
        return super().wait(timeout)
