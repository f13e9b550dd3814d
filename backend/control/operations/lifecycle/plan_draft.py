"""Values of a plan: stored as JSON and shown before anybody confirms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

JsonObject = dict[str, Any]


class CheckOutcome(StrEnum):
    """Result of a check for the plan."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """One question that was asked before the change; the sentence says what was found and what to do."""

    name: str
    outcome: CheckOutcome
    sentence: str


@dataclass(frozen=True, slots=True)
class Change:
    """One setting (or assignment) before and after; `before` and `after` are texts for people, None: not set."""

    object: str
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class DialogTexts:
    """The texts of the dialog, as the design gives them."""

    title: str
    intro: str
    effect: str
    risk: str = ""
    does_not_change: str = ""
    keep: str = "Keep"
    act: str = "Change"


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan before it is stored."""

    object: str
    changes: tuple[Change, ...]
    checks: tuple[PlanCheck, ...]
    cli: tuple[str, ...]
    words: DialogTexts
    estimate: JsonObject | None = None
    extra: JsonObject = field(default_factory=dict)  # tables of the kind, such as the matrix of effective values

    @property
    def refused(self) -> bool:
        return any(check.outcome is CheckOutcome.REFUSED for check in self.checks)

    def diff(self) -> JsonObject:
        """The `diff` column: what changes, in words and lines."""
        return {
            "object": self.object,
            "changes": [asdict(change) for change in self.changes],
            "words": asdict(self.words),
            **self.extra,
        }

    def checks_json(self) -> list[JsonObject]:
        return [asdict(check) | {"outcome": check.outcome.value} for check in self.checks]


@dataclass(frozen=True, slots=True)
class PlanVerification:
    """State of the cluster after the change. `done` False: not in effect yet, or not everywhere."""

    done: bool
    sentence: str
    detail: JsonObject = field(default_factory=dict)


SEEN: Final = "seen"


def lasting_part(snapshot: JsonObject) -> JsonObject:
    """The part of a snapshot that must still hold when the plan is executed."""
    return {name: value for name, value in snapshot.items() if name != SEEN}


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """Differences of two snapshots as sentences: empty when the plan still fits."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        result: list[str] = []
        for key in sorted({*before, *now}, key=str):
            where = f"{path}.{key}" if path else str(key)
            result += differences(before.get(key), now.get(key), where)
        return result
    if isinstance(before, Sequence) and isinstance(now, Sequence) and list(before) == list(now):
        return []
    return [] if before == now else [f"{path}: was {_text(before)}, is {_text(now)}"]


def _text(value: Any) -> str:
    return "not set" if value is None else str(value)


def first_refusal(checks: Iterable[PlanCheck]) -> str | None:
    """The sentence of the first check that refuses."""
    return next((check.sentence for check in checks if check.outcome is CheckOutcome.REFUSED), None)
