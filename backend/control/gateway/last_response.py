"""The newest answer to a question that is asked again and again, kept by who asks, with what was made of it.

An answer of the same bytes is that very message: it is not decoded again, and its readers see at once that nothing
has changed. Of 10,000 topics with 18 settings each it holds some 80 MB, of 42,000 offsets 5 MB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from backend.protocol import frames
from backend.protocol import messages as m

# One for each broker that Metadata may name as the controller, of 16 bytes.
ALIKE_MAX: Final = 1_000
M = TypeVar("M", bound=m.Message)
T = TypeVar("T")


@dataclass(slots=True)
class LastResponse(Generic[M, T]):
    """`ignored`: fields of the message in which answers may differ and be the same message all the same."""

    ignored: frozenset[str] = frozenset()
    _version: int = -1
    _body: bytes = b""
    _message: M | None = None
    _alike: set[bytes] = field(default_factory=set)  # hashes of other bodies of the same message
    _made_of: M | None = None
    _made: T | None = None

    def message_of(self, cls: type[M], version: int, frame: bytes) -> M:
        """The message of an answer. Raises DecodeError."""
        body = frame[4:]  # without the correlation id
        last = self._message if version == self._version else None
        if last is not None and body == self._body:
            return last
        key = hashlib.blake2b(body, digest_size=16).digest() if self.ignored else b""
        if last is not None and key in self._alike:
            return last
        message = frames.decode_response(cls, version, frame)[1]
        if last is not None and self.ignored and self._is_alike(last, message) and len(self._alike) < ALIKE_MAX:
            self._alike.add(key)
            return last
        self._version, self._body, self._message, self._alike = version, body, message, set()
        return message

    def made(self, response: M, make: Callable[[M], T]) -> T:
        """``make(response)``; of the same message the same object."""
        if self._made is None or self._made_of is not response:
            self._made_of, self._made = response, make(response)
        return self._made

    def _is_alike(self, last: M, message: M) -> bool:
        names = (name for name in message.FIELDS if name not in self.ignored)
        return all(getattr(last, name) == getattr(message, name) for name in names)
