"""One pipeline at a time in a data folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Busy(Exception):
    """Another pipeline works in this data folder. The message is one sentence for people."""


@contextmanager
def only_one(spark_dir: Path) -> Iterator[None]:
    """Hold the data folder's pipeline lock; the system frees it however the process ends."""
    spark_dir.mkdir(parents=True, exist_ok=True)
    with open(spark_dir / "lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Busy(
                f"Another pipeline works in {spark_dir}: stop it first, or choose another data folder."
            ) from error
        yield
