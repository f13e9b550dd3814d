"""Regular expressions over topic names, in the syntax of RE2, matched without backtracking.

A client chooses the expression, and Python's `re` may take exponential time for a chosen one. Here an expression
becomes a program of steps (Thompson's construction) that all possible positions walk at once, so a name costs at most
its length times the program's size. Topic names are made of 65 characters, so a character class is a set of those.
Left out, and refused, are classes by Unicode name and flags other than `i` and `s`; what RE2 refuses (look-around,
back-references, possessive repeats) is refused too. KIP-848; Kafka uses RE2/J.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from backend.protocol.errors import ErrorCode, KafkaError

# Legal in topic names (Kafka's Topic.LEGAL_CHARS).
LEGAL: Final = frozenset(string.ascii_letters + string.digits + "._-")
# A name has at most 249 characters: 249 x 500 steps, and what was walked before is remembered.
PROGRAM_MAX: Final = 500
PATTERN_CHARS_MAX: Final = 1000
DEPTH_MAX: Final = 50
# RE2's own limit of {n,m}.
REPEAT_MAX: Final = 1000
REMEMBERED_MAX: Final = 10_000

_DIGITS: Final = frozenset(string.digits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_ESCAPES: Final = {
    "d": _DIGITS,
    "w": _WORD,
    "s": frozenset[str](),
    "D": LEGAL - _DIGITS,
    "W": LEGAL - _WORD,
    "S": LEGAL,
}
_POSIX: Final = {
    "alnum": _WORD - {"_"},
    "alpha": frozenset(string.ascii_letters),
    "ascii": LEGAL,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": LEGAL,
    "lower": frozenset(string.ascii_lowercase),
    "print": LEGAL,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = frozenset("afnrtv")


class RegexError(ValueError):
    """An expression that cannot be used; the message says why."""


# The expression as a tree.


@dataclass(frozen=True, slots=True)
class _One:
    """One character of a set."""

    characters: frozenset[str]


@dataclass(frozen=True, slots=True)
class _At:
    """A condition on the place: ^ $ b B."""

    condition: str


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    choices: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    least: int
    most: int | None


_Node = _One | _At | _All | _Any | _Repeat


class _Parser:
    """Recursive descent over one expression."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.ignores_case = False

    def parse(self) -> _Node:
        node = self._choices()
        if self.at < len(self.text):
            raise RegexError("unexpected ): there is no ( before it")
        return node

    def _peek(self, ahead: str) -> bool:
        return self.text.startswith(ahead, self.at)

    def _take(self, ahead: str) -> bool:
        found = self._peek(ahead)
        self.at += len(ahead) * found
        return found

    def _next(self, inside: str) -> str:
        if self.at >= len(self.text):
            raise RegexError(f"it ends inside {inside}")
        self.at += 1
        return self.text[self.at - 1]

    def _choices(self) -> _Node:
        ignores_case = self.ignores_case
        choices = [self._sequence()]
        while self._take("|"):
            choices.append(self._sequence())
        # Flags hold to the end of their group.
        self.ignores_case = ignores_case
        return choices[0] if len(choices) == 1 else _Any(tuple(choices))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
        return _All(tuple(parts))

    def _repeated(self, atom: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return atom
        self._take("?")  # lazy: the same names match
        if self._bounds() is not None:
            raise RegexError("invalid nested repetition operator")
        return _Repeat(atom, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        end = self.text.find("}", self.at)
        if not self._peek("{") or end < 0:
            return None
        least, comma, most = self.text[self.at + 1 : end].partition(",")
        if not _is_number(least) or not (most == "" or _is_number(most)):
            # A brace that counts nothing is itself.
            return None
        self.at = end + 1
        low = int(least)
        high = low if not comma else int(most) if most else None
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise RegexError("invalid repeat count")
        return low, high

    def _atom(self) -> _Node | None:
        character = self._next("the expression")
        match character:
            case "(":
                return self._group()
            case "[":
                return _One(self._class())
            case ".":
                return _One(LEGAL)
            case "^" | "$":
                return _At(character)
            case "*" | "+" | "?":
                raise RegexError("missing argument to repetition operator")
            case "\\":
                return self._escape()
        return _One(self._letters({character}))

    def _letters(self, characters: Iterable[str]) -> frozenset[str]:
        found = frozenset(characters)
        if self.ignores_case:
            found |= {one.swapcase() for one in found}
        return found & LEGAL

    def _escape(self) -> _Node:
        character = self._next("an escape")
        if character in _ESCAPES:
            return _One(_ESCAPES[character])
        if character in "bB":
            return _At(character)
        if character in "Az":
            return _At("^" if character == "A" else "$")
        if character == "Q":
            end = self.text.find("\\E", self.at)
            quoted = self.text[self.at : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.text)
            return _All(tuple(_One(self._letters({one})) for one in quoted))
        return _One(self._letters(self._literal(character)))

    def _literal(self, character: str) -> set[str]:
        if character == "x":
            digits = self._next("an escape") + self._next("an escape")
            if not all(one in string.hexdigits for one in digits):
                raise RegexError("invalid escape sequence")
            return {chr(int(digits, 16))}
        if character in _CONTROLS:
            # No topic name has one.
            return set()
        if character.isalnum():
            raise RegexError("invalid escape sequence")
        return {character}

    def _group(self) -> _Node | None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise RegexError(f"it nests deeper than {DEPTH_MAX} groups")
        before = self.ignores_case
        if self._take("?") and self._flags() == ")":
            # (?i) holds for what follows in this group.
            self.depth -= 1
            return None
        node = self._choices()
        if not self._take(")"):
            raise RegexError("missing closing )")
        self.ignores_case = before
        self.depth -= 1
        return node

    def _flags(self) -> str:
        """After `(?`: the end of the flags, ":" or ")"; a name counts as ":"."""
        if self._take("P<") or (self._peek("<") and not self._peek("<=") and not self._peek("<!") and self._take("<")):
            name, end, _ = self.text[self.at :].partition(">")
            if not end or not name.isidentifier():
                raise RegexError("invalid named capture")
            self.at += len(name) + 1
            return ":"
        on = True
        while True:
            flag = self._next("a group")
            if flag in ":)":
                return flag
            if flag == "-":
                on = False
            elif flag == "i":
                self.ignores_case = on
            elif flag not in "smU":
                raise RegexError("invalid or unsupported Perl syntax")

    def _class(self) -> frozenset[str]:
        inverted = self._take("^")
        found: set[str] = set()
        first = True
        while first or not self._peek("]"):
            first = False
            found |= self._class_item()
        self.at += 1
        return LEGAL - found if inverted else frozenset(found)

    def _class_item(self) -> frozenset[str]:
        if self._peek("[:"):
            name, end, _ = self.text[self.at + 2 :].partition(":]")
            inverted, name = name.startswith("^"), name.removeprefix("^")
            if not end or name not in _POSIX:
                raise RegexError("invalid character class range")
            self.at += len(name) + inverted + 4
            return LEGAL - _POSIX[name] if inverted else _POSIX[name]
        low = self._next("a character class")
        if low == "\\":
            low = self._next("a character class")
            if low in _ESCAPES:
                return _ESCAPES[low]
            literal = self._literal(low)
            if not literal:
                return frozenset()
            (low,) = literal
        if not self._peek("-") or self.text.startswith("-]", self.at):
            return self._letters({low})
        self.at += 1
        high = self._next("a character class")
        if high == "\\":
            high = next(iter(self._literal(self._next("a character class"))), "")
        if high < low:
            raise RegexError("invalid character class range")
        return self._letters(one for one in LEGAL if low <= one <= high)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


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

    def compile(self, node: _Node, then: int) -> int:
        """The first step of a node that goes on at `then`."""
        match node:
            case _One(characters):
                return self._add(_Step((then,), characters))
            case _At(condition):
                return self._add(_Step((then,), condition=condition))
            case _All(parts):
                for part in reversed(parts):
                    then = self.compile(part, then)
                return then
            case _Any(choices):
                return self._add(_Step(tuple(self.compile(choice, then) for choice in choices)))
            case _Repeat(part, least, most):
                return self._repeat(part, least, most, then)

    def _repeat(self, part: _Node, least: int, most: int | None, then: int) -> int:
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

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise RegexError(f"it is longer than {PATTERN_CHARS_MAX} characters")
        compiler = _Compiler()
        self._start = compiler.compile(_Parser(text).parse(), 0)
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
    at_edge = (before in _WORD) != (after in _WORD)
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
