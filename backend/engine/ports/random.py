"""Randomness: ids and jitter."""

from __future__ import annotations

import base64
import random
import uuid
from typing import Protocol

RESERVED_UUIDS = frozenset({bytes(16), bytes(15) + b"\x01"})


class Random(Protocol):
    """Randomness as the engine sees it; a simulator seeds it."""

    def uuid(self) -> bytes:
        """16 bytes of a random (version 4) id whose text never starts with ``-`` (Kafka's Uuid.randomUuid)."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A float in ``[low, high]``."""
        ...

    def randrange(self, stop: int) -> int:
        """An int in ``[0, stop)``."""
        ...


class SystemRandom:
    """The machine's randomness; give a seed to repeat a run."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()

    def uuid(self) -> bytes:
        while True:
            value = uuid.UUID(int=self._random.getrandbits(128), version=4).bytes
            if value not in RESERVED_UUIDS and not base64.urlsafe_b64encode(value).startswith(b"-"):
                return value

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)
