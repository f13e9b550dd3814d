"""Results of the round before, for a cluster in which little has changed since."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, TypeVarTuple

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")
Ts = TypeVarTuple("Ts")


class Memo(Generic[KeyT, ValueT]):
    """A pure function's results by key. Returns the previous object when the arguments are equal.

    So the next function's arguments are the same objects too, and comparing them costs next to nothing. It holds the
    results of two rounds and no more.
    """

    def __init__(self) -> None:
        self._last: dict[KeyT, tuple[tuple[Any, ...], ValueT]] = {}
        self._now: dict[KeyT, tuple[tuple[Any, ...], ValueT]] = {}

    def value(self, key: KeyT, make: Callable[[*Ts], ValueT], *arguments: *Ts) -> ValueT:
        """``make(*arguments)``, which must depend on nothing else; one function for a key."""
        last = self._last.get(key)
        value = last[1] if last is not None and last[0] == arguments else make(*arguments)
        # The arguments of now: next time they may be the same objects.
        self._now[key] = arguments, value
        return value

    def begin_round(self) -> None:
        """Begins a turn: what the one before it did not ask for is forgotten."""
        self._last, self._now = self._now, {}
