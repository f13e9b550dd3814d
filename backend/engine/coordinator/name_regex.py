"""Regular expressions over names of topics and transactions, matched by RE2 in linear time (KIP-848, KIP-1152).

A client chooses the expression, and Python's `re` may take exponential time for a chosen one. Kafka uses RE2/J, the
same engine in Java; refusals here use its words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import re2

from backend.protocol.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

PATTERN_CHARS_MAX: Final = 1000
# Instructions of RE2's program: `.{999}`, the largest of its kind that Kafka takes, has 2,002. A topic's name of 249
# characters then costs at most 620,000 of its steps, some milliseconds.
PROGRAM_MAX: Final = 2500
# Where names may have any character RE2 counts the bytes of UTF-8: a `.` has 8 or 9 instructions instead of 2 (`.{999}`
# 7,996, `.?` 9), so the limit is nine times as high. `\pL` has 1,200 there: RE2/J takes more than 18 of them, this not.
ANY_NAME_PROGRAM_MAX: Final = 9 * PROGRAM_MAX
# Bytes for an expression's program and the states that matching remembers; when these are full, RE2 discards them.
MEMORY_MAX: Final = 1 << 20

# RE2's reason → the description of RE2/J's PatternSyntaxException, which Kafka puts into its response.
_REASONS: Final = {
    "missing )": "missing closing )",
    "unexpected )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": f"it takes more than {ANY_NAME_PROGRAM_MAX} steps",
}
# Text that is taken literally, an escape, a class, the name of a group. The two that RE2 takes and RE2/J refuses are
# ``any_byte`` and a ``name`` that stands twice.
_TOKENS: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)"
    r"|\\(?P<any_byte>C)|\\."
    r"|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
    r"|\(\?P?<(?P<name>\w+)>",
    re.DOTALL,
)


class RegexError(ValueError):
    """An expression that cannot be used; the message says why."""


class NameRegex:
    """An expression that whole names either match or not. RegexError when it cannot be used.

    Names of topics are ASCII, and matched byte by byte (``ascii_names``): `.` is one instruction then and `\\pL` some
    ten, which are nine and 1,200 where a name may have any character.
    """

    def __init__(self, text: str, *, ascii_names: bool = False) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise RegexError(f"it is longer than {PATTERN_CHARS_MAX} characters")
        self._encoding, self._regex = _compile_ascii(text) if ascii_names else _compile(text, "utf-8")
        _refuse_what_kafka_refuses(text)
        program_max = PROGRAM_MAX if ascii_names else ANY_NAME_PROGRAM_MAX
        # Instructions: the time of a match grows with these times the name's length.
        self.program_size: int = self._regex.programsize
        if self.program_size > program_max:
            raise RegexError(f"it takes more than {program_max} steps")

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._regex.fullmatch(name.encode(self._encoding)) is not None


def _compile_ascii(text: str) -> tuple[str, Any]:
    """As Latin-1, or where the expression names characters beyond that (`é` is none of them), as UTF-8."""
    if max(text, default="") <= "\xff":
        with suppress(RegexError):
            return _compile(text, "latin-1")
    return _compile(text, "utf-8")


def _compile(text: str, encoding: str) -> tuple[str, Any]:
    """The encoding of expression and names, and RE2's object. Raises RegexError."""
    options: Any = re2.Options()
    options.max_mem = MEMORY_MAX
    options.log_errors = False
    # No result of a group is used, and without them RE2 needs one pass only.
    options.never_capture = True
    if encoding == "latin-1":
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return encoding, re2.compile(text.encode(encoding), options)
    except re2.error as error:
        raise RegexError(_reason(error)) from None


def _refuse_what_kafka_refuses(text: str) -> None:
    """Raises RegexError for what is valid in RE2 and not in Kafka's RE2/J; both were asked of a broker of 4.3.1."""
    names: set[str] = set()
    for token in _TOKENS.finditer(text):
        if token["any_byte"]:
            raise RegexError("invalid escape sequence")
        if token["name"] and not token["name"].isascii():
            raise RegexError("invalid named capture")
        if token["name"] in names:
            raise RegexError("duplicate capture group name")
        if token["name"]:
            names.add(token["name"])


def _reason(error: Exception) -> str:
    """RE2 says `reason: the part of the expression`, as bytes."""
    text = error.args[0] if error.args else b""
    reason = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    reason, _, part = reason.partition(": ")
    if reason == "invalid perl operator" and part.startswith("(?<"):
        reason = "invalid named capture group"
    return _REASONS.get(reason, reason)


@lru_cache(maxsize=200)
def _topic_regex(text: str) -> NameRegex:
    return NameRegex(text, ascii_names=True)


def check_regex(text: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION."""
    try:
        _topic_regex(text)
    except RegexError as error:
        message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


@lru_cache(maxsize=200)
def _stored(text: str) -> NameRegex | None:
    """An expression that a group has; None when another version took it and this one cannot use it."""
    try:
        return _topic_regex(text)
    except RegexError as error:
        _log.warning(
            "A consumer group's SubscribedTopicRegex `%s` matches no topic: %s", text[:PATTERN_CHARS_MAX], error
        )
        return None


def matching_topics(text: str, names: Iterable[str]) -> frozenset[str]:
    """Names of topics that match as a whole; none, with a line in the log, when the stored expression is unusable."""
    regex = _stored(text)
    return frozenset() if regex is None else frozenset(name for name in names if regex.matches(name))
