"""The code blocks of a page, and how they are to be run. Pure.

A block is run by its language: `console` (lines that begin with `$ ` are commands, the lines after a command are all
that it prints), `sh` and `python` (they end with 0). Blocks of other languages are read by people alone. A comment
before a block, which no reader sees, says what else it needs:

    <!-- run: no, it needs an Apache Kafka -->      not run, and why
    <!-- run: soak -->                              only in `make soak`
    <!-- run: file server.properties -->            the block is written to that file of the working folder
    <!-- run: wait 30 -->                           tried again for so many seconds until it prints what the page shows
    <!-- run: background -->                        goes on beside the blocks that follow, to the end of its page
    <!-- run: exit 6 -->                            the exit code of the block's last command

`…` in an expected line is any text of that line, a line of `…` alone is any lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

RUN_LANGUAGES: Final = ("console", "sh", "python")
READ_LANGUAGES: Final = ("text", "json", "toml", "properties", "yaml", "mermaid")
_DIRECTIVE: Final = re.compile(r"<!-- run: (.+?) -->")
_FENCE: Final = re.compile(r"^(\s*)```(\w*)\s*$")
# Every line that Markdown reads as a fence: also of tildes, of four backticks, or with more than a language.
_LIKE_FENCE: Final = re.compile(r"^\s*(?:```|~~~)")
ANY: Final = "…"


class BadBlock(Exception):
    """A block that does not follow the convention: page, line, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Directive:
    """The comment before a block."""

    not_run: str = ""
    soak: bool = False
    file: str = ""
    wait_s: int = 0
    background: bool = False
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block and the lines that the page shows after it."""

    text: str
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `line` is that of its fence."""

    page: str
    line: int
    language: str
    lines: tuple[str, ...]
    directive: Directive = field(default_factory=Directive)

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether anything is to be done with it."""
        return (self.language in RUN_LANGUAGES or bool(self.directive.file)) and not self.directive.not_run

    def commands(self) -> list[Command]:
        """Of a console block. Raises BadBlock for output before the first command."""
        commands: list[Command] = []
        for text in self.lines:
            if text.startswith("$ "):
                commands.append(Command(text[2:], ()))
            elif commands and commands[-1].text.endswith("\\"):
                commands[-1] = Command(f"{commands[-1].text}\n{text}", ())
            elif commands:
                commands[-1] = Command(commands[-1].text, (*commands[-1].expected, text))
            else:
                raise BadBlock(f"{self.name}: a console block begins with a command, `$ …`")
        return commands


def blocks_of(page: str, text: str) -> list[Block]:
    """All fenced blocks. Raises BadBlock, also for a fence that would be overlooked: its block would not be run."""
    blocks: list[Block] = []
    directive, begun, language, inside = Directive(), 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if begun and line.lstrip().startswith("```") and (fence is None or fence[2]):
            raise BadBlock(f"{page}:{begun}: a block ends with three backticks alone before another begins")
        if fence is not None and begun:
            blocks.append(Block(page, begun, language, tuple(inside), directive))
            directive, begun, inside = Directive(), 0, []
        elif fence is not None:
            begun, language = number, fence[2]
            if language not in (*RUN_LANGUAGES, *READ_LANGUAGES):
                raise BadBlock(f"{page}:{number}: a block has a language of {RUN_LANGUAGES} or {READ_LANGUAGES}")
        elif begun:
            inside.append(line)
        elif _LIKE_FENCE.match(line):
            raise BadBlock(f"{page}:{number}: a block is fenced by three backticks and a language, nothing else")
        elif (comment := _DIRECTIVE.fullmatch(line.strip())) is not None:
            directive = _directive(f"{page}:{number}", comment[1])
        elif line.strip():
            if directive != Directive():
                raise BadBlock(f"{page}:{number}: a comment `run:` stands directly before its block")
            if line.startswith("    ") and (not blocks or text.splitlines()[number - 2] == ""):
                raise BadBlock(f"{page}:{number}: a block is fenced and names its language, it is not indented")
    if begun:
        raise BadBlock(f"{page}:{begun}: a block is never closed")
    if directive != Directive():
        raise BadBlock(f"{page}: a comment `run:` stands directly before its block, the last one before none")
    return blocks


def _directive(place: str, text: str) -> Directive:
    word, _, rest = text.partition(" ")
    if word == "no," and rest:
        return Directive(not_run=rest)
    parts: dict[str, object] = {}
    for part in text.split(", "):
        match part.split(" "):
            case ["soak"]:
                parts["soak"] = True
            case ["background"]:
                parts["background"] = True
            case ["file", name]:
                parts["file"] = name
            case ["wait", seconds]:
                parts["wait_s"] = int(seconds)
            case ["exit", code]:
                parts["exit_code"] = int(code)
            case _:
                raise BadBlock(f"{place}: {part!r} is no directive of `run:` (tests/docs/blocks.py lists them)")
    return Directive(**parts)  # type: ignore[arg-type]


def difference(expected: tuple[str, ...], printed: str) -> str | None:
    """Where the output is not what the page shows; None where it is. Runs of spaces count as one."""
    pattern = ""
    for line in expected:
        if line.strip() == ANY:
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += ANY_OF_LINE.join(re.escape(part) for part in _squeezed(line).split(ANY)) + r"\n"
    lines = [_squeezed(line) for line in printed.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)):
        return None
    shown = "\n".join(expected)
    return f"the page shows\n{shown}\nand this was printed\n{printed}"


ANY_OF_LINE: Final = r"[^\n]*?"


def _squeezed(line: str) -> str:
    return " ".join(line.split())
