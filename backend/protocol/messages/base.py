"""Base classes of the generated messages: equality, printing and the facts a class knows about itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar


class Struct:
    """A struct of a message: slots only, keyword-only construction, equal when all fields are equal.

    Construction and equality are generated with each class.
    """

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:

        def __eq__(self, other: object) -> bool: ...

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{self.__class__.__qualname__}({inner})"


class Message(Struct):
    """A request, a response or a record of an internal topic."""

    __slots__ = ()
    NAME: ClassVar[str]
    GROUP: ClassVar[str]
    KIND: ClassVar[str]
    KEY: ClassVar[int]  # api key, or record type in its group; -1 when it has none
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FIRST_FLEXIBLE: ClassVar[int]  # above MAX_VERSION when no version is flexible (KIP-482)
    HAS_RECORDS: ClassVar[bool]  # whether a field passes record batches through as they are
    # Functions of each version, filled by the codec when a version is first used.
    ENCODERS: ClassVar[dict[int, Callable[[Any, list[Any], list[Any]], None]]]
    DECODERS: ClassVar[dict[int, Callable[..., tuple[Any, int]]]]
