"""Regular expressions over names of topics and transactions, in the syntax of RE2, matched without backtracking.

A client chooses the expression, and Python's `re` may take exponential time for a chosen one. Here an expression
becomes a program of steps (Thompson's construction) that all possible positions walk at once, so a name costs at most
its length times the program's size. What is understood says `regex_syntax`. KIP-848, KIP-1152; Kafka uses RE2/J.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from backend.engine.coordinator.regex_syntax import (
    LEGAL,
    WORD,
    At,
    Choice,
    Node,
    One,
    Parser,
    RegexError,
    Repeat,
    Sequence,
)
from backend.protocol.errors import ErrorCode, KafkaError

# A name has at most 249 characters: 249 x 500 steps, and what was walked before is remembered.
PROGRAM_MAX: Final = 500
PATTERN_CHARS_MAX: Final = 1000
REMEMBERED_MAX: Final = 10_000


# The expression as a program.


@dataclass(frozen=True, slots=True)
class _Step:
    """Where to go on; with `characters` after one of them, with `condition` if it holds."""

    to: tuple[int, ...]
    characters: frozenset[str] | None = None
    condition: str | None = None


class _Compiler:
    """Steps are made from the end on, so that each knows its successors. Step 0 is the end."""

    def __init__(self) -> None:
        self.steps: list[_Step] = [_Step(())]

    def _add(self, step: _Step) -> int:
        if len(self.steps) >= PROGRAM_MAX:
            raise RegexError(f"it takes more than {PROGRAM_MAX} steps")
        self.steps.append(step)
        return len(self.steps) - 1

    def compile(self, node: Node, then: int) -> int:
        """The first step of a node that goes on at `then`."""
        match node:
            case One(characters):
                return self._add(_Step((then,), characters))
            case At(condition):
                return self._add(_Step((then,), condition=condition))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self.compile(part, then)
                return then
            case Choice(choices):
                return self._add(_Step(tuple(self.compile(choice, then) for choice in choices)))
            case Repeat(part, least, most):
                return self._repeat(part, least, most, then)

    def _repeat(self, part: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self._add(_Step(()))
            self.steps[loop] = _Step((self.compile(part, loop), then))
            then = loop
        else:
            end = then
            for _ in range(most - least):
                then = self._add(_Step((self.compile(part, then), end)))
        for _ in range(least):
            then = self.compile(part, then)
        return then


class TopicRegex:
    """An expression that whole names either match or not. RegexError when it cannot be used."""

    def __init__(self, text: str, alphabet: frozenset[str] = LEGAL) -> None:
        """`alphabet` has every character of the names."""
        if len(text) > PATTERN_CHARS_MAX:
            raise RegexError(f"it is longer than {PATTERN_CHARS_MAX} characters")
        compiler = _Compiler()
        self._start = compiler.compile(Parser(text, alphabet).parse(), 0)
        self._steps = tuple(compiler.steps)
        # (places, character before, character after) → places that want the character after.
        self._walked: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        places = frozenset({self._start})
        before = ""
        for character in name:
            waiting = self._settle(places, before, character)
            places = frozenset(
                self._steps[at].to[0] for at in waiting if character in (self._steps[at].characters or ())
            )
            if not places:
                return False
            before = character
        return 0 in self._settle(places, before, "")

    def _settle(self, places: frozenset[int], before: str, after: str) -> frozenset[int]:
        """Steps that wait for a character, or the end, reached from places without reading one."""
        key = (places, before, after)
        known = self._walked.get(key)
        if known is not None:
            return known
        seen, open_, waiting = set(places), list(places), set()
        while open_:
            at = open_.pop()
            step = self._steps[at]
            if step.characters is not None or at == 0:
                waiting.add(at)
            elif step.condition is None or _holds(step.condition, before, after):
                fresh = [to for to in step.to if to not in seen]
                seen.update(fresh)
                open_.extend(fresh)
        if len(self._walked) >= REMEMBERED_MAX:
            self._walked.clear()
        settled = self._walked[key] = frozenset(waiting)
        return settled


def _holds(condition: str, before: str, after: str) -> bool:
    if condition == "^":
        return not before
    if condition == "$":
        return not after
    at_edge = (before in WORD) != (after in WORD)
    return at_edge == (condition == "b")


@lru_cache(maxsize=200)
def _compiled(text: str) -> TopicRegex:
    return TopicRegex(text)


def check_regex(text: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION."""
    try:
        _compiled(text)
    except RegexError as error:
        message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def matching_topics(text: str, names: Iterable[str]) -> frozenset[str]:
    """Names that match as a whole; none when the expression, stored by another version, cannot be used."""
    try:
        regex = _compiled(text)
    except RegexError:
        return frozenset()
    return frozenset(name for name in names if regex.matches(name))
