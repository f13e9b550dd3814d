"""An object store in memory that all brokers share, with the bad days of a real one.

Slow, refusing (503), done or half done although it said it failed, an answer that is cut, and a listing that does not
know yet what was stored just now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from backend.protocol.buffers import Buffer

if TYPE_CHECKING:
    from tests.simulation.disk import VirtualDisk

# Of the changes that were carried out although they failed, the part that was so by half.
HALF: Final = 0.4


class SlowDown(OSError):
    """503 of the store."""


@dataclass(slots=True)
class Mood:
    """How the store behaves now."""

    # Part of the calls that fail; and of those, the part that was carried out all the same.
    refusing: float = 0.0
    done_all_the_same: float = 0.5
    # How long a storage call takes, in ms.
    call_ms: tuple[float, float] = (1.0, 8.0)
    list_delay_ms: float = 0.0
    # Part of the reads of whole objects that bring only their beginning.
    cutting: float = 0.0


@dataclass(slots=True)
class Objects:
    """The stored objects. `history` is every segment file ever put, for the checkers."""

    random: Random
    now_ms: Callable[[], float]
    mood: Mood = field(default_factory=Mood)
    stored: dict[str, bytes] = field(default_factory=dict)
    stored_at_ms: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    changes: int = 0
    refused: int = 0

    def call_ms(self) -> float:
        return self.random.uniform(*self.mood.call_ms)


class VirtualObjectStore:
    """One process's way to the store."""

    def __init__(self, objects: Objects, disk: VirtualDisk) -> None:
        self._objects = objects
        self._disk = disk

    def _call(self, carry_out: Callable[[], None] | None = None, half: Callable[[], None] | None = None) -> None:
        """Fails, or not, as the mood is; a failed change may have happened, or half of it."""
        objects = self._objects
        objects.calls += 1
        mood = objects.mood
        if mood.refusing and objects.random.random() < mood.refusing:
            objects.refused += 1
            if carry_out is not None and objects.random.random() < mood.done_all_the_same:
                (half if half is not None and objects.random.random() < HALF else carry_out)()
            raise SlowDown(5, "503 Slow Down")
        if carry_out is not None:
            carry_out()

    def put_file(self, key: str, path: str) -> None:
        self.put(key, self._disk.read(path))

    def put(self, key: str, data: Buffer) -> None:
        self._disk.check_alive()

        def store(size: int) -> None:
            self._objects.changes += 1
            self._objects.stored[key] = bytes(data[:size])
            self._objects.stored_at_ms[key] = self._objects.now_ms()

        self._call(lambda: store(len(data)), lambda: store(self._objects.random.randint(0, len(data))))

    def get(self, key: str) -> bytes:
        self._call()
        content, objects = self._stored(key), self._objects
        if objects.mood.cutting and objects.random.random() < objects.mood.cutting:
            return content[: objects.random.randint(0, len(content))]
        return content

    def _stored(self, key: str) -> bytes:
        try:
            return self._objects.stored[key]
        except KeyError:
            raise FileNotFoundError(2, "404 Not Found", key) from None

    def get_range(self, key: str, start: int, size: int) -> bytes:
        self._call()
        return self._stored(key)[start : start + size]

    def size(self, key: str) -> int:
        self._call()
        return len(self._stored(key))

    def delete(self, key: str) -> None:
        self._disk.check_alive()
        self._call(lambda: _forget(self._objects, key))

    def list(self, prefix: str) -> list[tuple[str, int]]:
        self._call()
        objects = self._objects
        known_ms = objects.now_ms() - objects.mood.list_delay_ms
        folder = prefix.rstrip("/") + "/"
        return sorted(
            (key, len(data))
            for key, data in objects.stored.items()
            if key.startswith(folder) and objects.stored_at_ms[key] <= known_ms
        )


def _forget(objects: Objects, key: str) -> None:
    objects.changes += 1
    objects.stored.pop(key, None)
    objects.stored_at_ms.pop(key, None)
