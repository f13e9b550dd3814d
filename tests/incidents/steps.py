"""Steps of an incident: operations of a rig (`rigs.Rig`), named, with their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

PAUSE: Final = "pause"
"""The one operation that is the player's: `pause(seconds)` only waits, and the findings are recorded meanwhile."""


class Phase(StrEnum):
    """The part of an incident that a step belongs to."""

    PREPARE = "prepare"
    """Before the clock runs: a finding that it brings must have closed before the incident begins."""
    BREAK = "break"
    """The first of these starts the clock of what must be found."""
    MEND = "mend"
    """The action of the finding, carried out; the end of the last starts the clock of what must close."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation. `label` names the moment at which it began, for expectations that count from there."""

    phase: Phase
    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.operation}({arguments})"


def before(operation: str, label: str = "", **arguments: Any) -> Step:
    """A step of the preparation."""
    return Step(Phase.PREPARE, operation, arguments, label)


def breaks(operation: str, label: str = "", **arguments: Any) -> Step:
    """A step that breaks something, or only does what an operator does on a normal day."""
    return Step(Phase.BREAK, operation, arguments, label)


def mends(operation: str, label: str = "", **arguments: Any) -> Step:
    """A step that carries the action out."""
    return Step(Phase.MEND, operation, arguments, label)
