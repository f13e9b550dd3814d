"""Bodies and answers of the API about alerts: receivers, settings of rules, maintenance windows."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field, StringConstraints, field_validator

from backend.control.alerts.receiver_task import ReceiverStatus
from backend.control.findings.catalogue import SLUGS
from backend.control.findings.causes import Link
from backend.control.http.api_models import RowId, Strict, example_bodies
from backend.store.maintenance_window import MaintenanceWindow

# A pattern as a shell has it, over names of topics.
TopicPattern = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._*?\[\]!-]+$")]
# Thirty days, as a mute.
MINUTES_MAX: Final = 43_200


class ReceiverPath(Strict):
    receiver: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,60}$")]


class ReceiversAnswer(BaseModel):
    """`file`: where receivers, routes and rules stand; null: there is none. `mistake`: why its present content is not
    in force; the former one is.
    """

    file: str | None
    mistake: str | None
    loaded_ms: int | None
    items: list[ReceiverStatus]


class ReceiverTestAnswer(BaseModel):
    """`taken` false: `reason` says why not."""

    receiver: str
    taken: bool
    reason: str | None


class ThresholdAnswer(BaseModel):
    """A number that a rule compares with; `topics` null: for all, else for those of this pattern alone."""

    slug: str
    name: str
    value: float
    default: float
    unit: str
    topics: str | None
    reason: str


class HoldAnswer(BaseModel):
    """How long it must be so before it is a finding, for all topics; `case` null: of all findings of the rule that no
    other one is about. `for_s` of a rule replaces all of its holds.
    """

    slug: str
    case: str | None
    for_s: float
    default_s: float
    reason: str


class RuleSettingAnswer(BaseModel):
    """A table of the file; null: as the rule itself says."""

    slug: str
    topics: str | None
    for_s: float | None
    severity: str | None
    off: bool


class ExplanationAnswer(BaseModel):
    """Findings of `slugs` that one of the rule explains, where both are about the same broker, topic or partition, or
    anywhere in the cluster. `unseen_only`: of these only what is kept as it was seen last; `evidence_rules`: only what
    has such a `rule` in its evidence; null: all. `cause_rule`: only where the cause itself has this one; null: always.
    """

    link: Link
    slugs: list[str]
    unseen_only: bool
    evidence_rules: list[str] | None
    cause_rule: str | None


class RuleAnswer(BaseModel):
    """A rule that there is, and what its findings explain."""

    slug: str
    title: str
    explains: list[ExplanationAnswer]


class RuleSettingsAnswer(BaseModel):
    """Settings that the rules judge by, and the rules there are."""

    thresholds: list[ThresholdAnswer]
    holds: list[HoldAnswer]
    rules: list[RuleSettingAnswer]
    catalogue: list[RuleAnswer]


class RulePath(Strict):
    slug: Annotated[str, StringConstraints(pattern=r"^[a-z-]{1,60}$")]


RuleValue = Annotated[float, Field(allow_inf_nan=False)] | bool | Annotated[str, StringConstraints(max_length=100)]


class RuleBody(Strict):
    """`values`: names of the rule's table in the alerts file, as `for_s`, `severity`, `off` and its thresholds; null:
    as the rule itself says. `topics` null: for all topics, else for those of this pattern alone.
    """

    model_config = example_bodies(
        {"values": {"stuck_s": 300, "severity": "warning"}, "topics": "logs-*", "reason": "batch loads at night"},
        {"values": {"off": True}, "reason": "not ours"},
    )

    values: Annotated[
        dict[Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,60}$")], RuleValue | None],
        Field(min_length=1, max_length=20),
    ]
    topics: TopicPattern | None = None
    reason: Annotated[str, StringConstraints(min_length=1, max_length=500)]

    @field_validator("values")
    @classmethod
    def _no_pattern(cls, values: dict[str, RuleValue | None]) -> dict[str, RuleValue | None]:
        if "topics" in values:
            raise ValueError("topics stands beside the values: it says which findings they are for")
        return values


class MaintenancePath(Strict):
    window_id: RowId


class MaintenanceBody(Strict):
    """`begins_ms` null: now. A field that is null limits nothing: a window without any of them covers everything."""

    model_config = example_bodies(
        {"minutes": 120, "broker_id": 2, "reason": "new disks"},
        {"begins_ms": 1_900_000_000_000, "minutes": 60, "topic": "logs-*", "slug": "copy-slow", "reason": "load test"},
    )

    begins_ms: Annotated[int, Field(ge=0, le=2**53)] | None = None
    minutes: Annotated[int, Field(ge=1, le=MINUTES_MAX)]
    slug: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    topic: TopicPattern | None = None
    broker_id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    reason: Annotated[str, StringConstraints(min_length=1, max_length=500)]

    @field_validator("slug")
    @classmethod
    def _there(cls, slug: str | None) -> str | None:
        if slug is not None and slug not in SLUGS:
            raise ValueError("there is no such rule; `ebbline thresholds` and docs/findings.md list them")
        return slug


class MaintenanceAnswer(BaseModel):
    window: MaintenanceWindow


class MaintenanceListAnswer(BaseModel):
    """Windows that hold, are planned, or ended within the last seven days."""

    now_ms: int
    items: list[MaintenanceWindow]
