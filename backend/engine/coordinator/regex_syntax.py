"""Reading a regular expression over names in the syntax of RE2: text to a tree.

Names are made of the characters of an alphabet, so a character class is a set of those.
Left out, and refused, are classes by Unicode name and flags other than `i` and `s`; what RE2 refuses (look-around,
back-references, possessive repeats) is refused too.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Legal in topic names (Kafka's Topic.LEGAL_CHARS).
LEGAL: Final = frozenset(string.ascii_letters + string.digits + "._-")
DEPTH_MAX: Final = 50
# RE2's own limit of {n,m}.
REPEAT_MAX: Final = 1000

_DIGITS: Final = frozenset(string.digits)
WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_ASCII: Final = frozenset(map(chr, range(128)))
_GRAPH: Final = frozenset(map(chr, range(0x21, 0x7F)))
_ESCAPES: Final = {"d": _DIGITS, "w": WORD, "s": frozenset(" \t\n\f\r")}
_POSIX: Final = {
    "alnum": WORD - {"_"},
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ASCII,
    "blank": frozenset(" \t"),
    "cntrl": _ASCII - _GRAPH - {" "},
    "digit": _DIGITS,
    "graph": _GRAPH,
    "lower": frozenset(string.ascii_lowercase),
    "print": _GRAPH | {" "},
    "punct": frozenset(string.punctuation),
    "space": frozenset(" \t\n\v\f\r"),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class RegexError(ValueError):
    """An expression that cannot be used; the message says why."""


# The expression as a tree.


@dataclass(frozen=True, slots=True)
class One:
    """One character of a set."""

    characters: frozenset[str]


@dataclass(frozen=True, slots=True)
class At:
    """A condition on the place: ^ $ b B."""

    condition: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    choices: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    most: int | None


Node = One | At | Sequence | Choice | Repeat


class Parser:
    """Recursive descent over one expression."""

    def __init__(self, text: str, alphabet: frozenset[str] = LEGAL) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.alphabet = alphabet
        self.ignores_case = False
        self.dot_is_all = False

    def parse(self) -> Node:
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

    def _choices(self) -> Node:
        flags = self.ignores_case, self.dot_is_all
        choices = [self._sequence()]
        while self._take("|"):
            choices.append(self._sequence())
        # Flags hold to the end of their group.
        self.ignores_case, self.dot_is_all = flags
        return choices[0] if len(choices) == 1 else Choice(tuple(choices))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
        return Sequence(tuple(parts))

    def _repeated(self, atom: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return atom
        self._take("?")  # lazy: the same names match
        if self._bounds() is not None:
            raise RegexError("invalid nested repetition operator")
        return Repeat(atom, *bounds)

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

    def _atom(self) -> Node | None:
        character = self._next("the expression")
        match character:
            case "(":
                return self._group()
            case "[":
                return One(self._class())
            case ".":
                return One(self.alphabet if self.dot_is_all else self.alphabet - {"\n"})
            case "^" | "$":
                return At(character)
            case "*" | "+" | "?":
                raise RegexError("missing argument to repetition operator")
            case "\\":
                return self._escape()
        return One(self._letters({character}))

    def _letters(self, characters: Iterable[str]) -> frozenset[str]:
        found = frozenset(characters)
        if self.ignores_case:
            found |= {one.swapcase() for one in found}
        return found & self.alphabet

    def _escape(self) -> Node:
        character = self._next("an escape")
        if character.lower() in _ESCAPES:
            return One(self._escaped_class(character))
        if character in "bB":
            return At(character)
        if character in "Az":
            return At("^" if character == "A" else "$")
        if character == "Q":
            end = self.text.find("\\E", self.at)
            quoted = self.text[self.at : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.text)
            return Sequence(tuple(One(self._letters({one})) for one in quoted))
        return One(self._letters(self._literal(character)))

    def _escaped_class(self, character: str) -> frozenset[str]:
        found = _ESCAPES[character.lower()]
        return found & self.alphabet if character.islower() else self.alphabet - found

    def _literal(self, character: str) -> set[str]:
        if character == "x":
            digits = self._next("an escape") + self._next("an escape")
            if not all(digit in string.hexdigits for digit in digits):
                raise RegexError("invalid escape sequence")
            return {chr(int(digits, 16))}
        if character in _CONTROLS:
            return {_CONTROLS[character]}
        if character.isalnum():
            raise RegexError("invalid escape sequence")
        return {character}

    def _group(self) -> Node | None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise RegexError(f"it nests deeper than {DEPTH_MAX} groups")
        before = self.ignores_case, self.dot_is_all
        if self._take("?") and self._flags() == ")":
            # (?i) holds for what follows in this group.
            self.depth -= 1
            return None
        node = self._choices()
        if not self._take(")"):
            raise RegexError("missing closing )")
        self.ignores_case, self.dot_is_all = before
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
            elif flag == "s":
                self.dot_is_all = on
            elif flag not in "mU":
                raise RegexError("invalid or unsupported Perl syntax")

    def _class(self) -> frozenset[str]:
        inverted = self._take("^")
        found: set[str] = set()
        first = True
        while first or not self._peek("]"):
            first = False
            found |= self._class_item()
        self.at += 1
        return self.alphabet - found if inverted else frozenset(found)

    def _class_item(self) -> frozenset[str]:
        if self._peek("[:"):
            name, end, _ = self.text[self.at + 2 :].partition(":]")
            inverted, name = name.startswith("^"), name.removeprefix("^")
            if not end or name not in _POSIX:
                raise RegexError("invalid character class range")
            self.at += len(name) + inverted + 4
            return self.alphabet - _POSIX[name] if inverted else _POSIX[name] & self.alphabet
        low = self._next("a character class")
        if low == "\\":
            low = self._next("a character class")
            if low.lower() in _ESCAPES:
                return self._escaped_class(low)
            (low,) = self._literal(low)
        if not self._peek("-") or self.text.startswith("-]", self.at):
            return self._letters({low})
        self.at += 1
        high = self._next("a character class")
        if high == "\\":
            (high,) = self._literal(self._next("a character class"))
        if high < low:
            raise RegexError("invalid character class range")
        return self._letters(one for one in self.alphabet if low <= one <= high)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
