"""Bodies, queries and answers of the API, as pydantic models; rows of the store are answered as they are."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from backend.control.findings.catalogue import SLUGS
from backend.control.findings.remote_reads import RemoteReads
from backend.control.lab.bootstrap.race_run import BootstrapRun
from backend.control.lab.faults.scenarios import FaultRun, Scenario
from backend.control.observer.watches.broker_numbers import BrokerNumbers
from backend.store.blind_spots import BlindSpot
from backend.store.queries.audit import AuditRow, OperationRow
from backend.store.queries.config import ConfigRow
from backend.store.queries.findings import Finding
from backend.store.queries.health import ClusterRow
from backend.store.queries.overview import BrokerRow, ClusterSample
from backend.store.queries.partitions import PartitionRow, ReplicaRow, SegmentRow
from backend.tiering.durability import Durability
from backend.tiering.eligible_leaders import EligibleLeaders

ShortText = Annotated[str, StringConstraints(max_length=500)]
TopicName = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
# A rule and the object of a finding: names of topics and folders, no control characters.
CAUSE_PATTERN: Final = r"^[a-z-]{1,60}:[^\x00-\x1f\x7f]{1,300}$"


def _cause_name(text: str) -> str:
    if re.fullmatch(CAUSE_PATTERN, text) is None:
        raise ValueError("it is RULE:OBJECT, as in broker-away:broker 3")
    if (slug := text.partition(":")[0]) not in SLUGS:
        raise ValueError(f"there is no rule {slug}; `ebbline thresholds` and docs/findings.md list them")
    return text


CauseName = Annotated[str, AfterValidator(_cause_name), Field(json_schema_extra={"pattern": CAUSE_PATTERN})]
# Row numbers are 64-bit in both databases; what does not fit is no number of ours.
RowId = Annotated[int, Field(ge=1, le=2**63 - 1)]


class Strict(BaseModel):
    """Unknown names are refused, so that a misspelt one is not silently ignored."""

    model_config = ConfigDict(extra="forbid")


def example_bodies(*bodies: dict[str, Any]) -> ConfigDict:
    """Bodies as `/openapi.json` shows them; each fits its model, which a test checks."""
    return ConfigDict(extra="forbid", json_schema_extra={"examples": list(bodies)})


class PartitionPath(Strict):
    topic: TopicName
    partition: Annotated[int, Field(ge=0, le=2**31 - 1)]


class PlanPath(Strict):
    plan_id: RowId


class PartitionsQuery(Strict):
    """`tiered=false` lists all partitions."""

    tiered: bool = True
    topic: TopicName | None = None
    limit: Annotated[int, Field(ge=1, le=20_000)] = 1_000
    offset: Annotated[int, Field(ge=0, le=20_000)] = 0


class ConfigQuery(Strict):
    """`resource` is a broker id or a topic; the empty string is the brokers' cluster default."""

    resource_type: Literal["broker", "topic"] = "broker"
    resource: Annotated[str, StringConstraints(max_length=249)] | None = None
    name: Annotated[str, StringConstraints(min_length=1, max_length=249)] | None = None
    # Settings of 250 topics, some 6 MB.
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    offset: Annotated[int, Field(ge=0, le=10_000_000)] = 0


class AuditQuery(Strict):
    """Newest first; `before_id` continues below the last row."""

    before_id: RowId | None = None
    action: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class FindingsQuery(Strict):
    """Opened last first; `before_id` continues below the last row. `muted=false` leaves out what is muted now.

    `cause`, SLUG:OBJECT as in `broker-away:broker 3`: only what this finding explains.
    """

    state: Literal["open", "closed", "all"] = "open"
    severity: Literal["critical", "warning", "notice"] | None = None
    slug: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    topic: TopicName | None = None
    cause: CauseName | None = None
    muted: bool = True
    before_id: RowId | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class FindingPath(Strict):
    finding_id: RowId


class AcknowledgeBody(Strict):
    """`reason` stands in the audit."""

    model_config = example_bodies(
        {"reason": "looking at it"},
    )

    reason: ShortText | None = None


class MuteBody(Strict):
    """Time without notices of it, also when it closes and opens again; 0 ends the silence."""

    model_config = example_bodies(
        {"minutes": 60, "reason": "maintenance until noon"},
    )

    minutes: Annotated[int, Field(ge=0, le=43_200)]
    reason: ShortText | None = None


class PlansQuery(Strict):
    """Newest first; `before_id` continues below the last row."""

    before_id: RowId | None = None
    kind: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    state: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class PlanBody(Strict):
    """A change to plan. `dry_run` stores nothing, so a viewer may ask for it."""

    model_config = example_bodies(
        {
            "kind": "reassign",
            "inputs": {"action": "add", "topics": ["orders"], "brokers": [3], "throttle_bytes_per_s": 50_000_000},
        },
        {"kind": "toggle_bootstrap", "inputs": {"enable": True}, "dry_run": True},
    )

    kind: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    inputs: dict[str, Any]
    reason: ShortText | None = None
    dry_run: bool = False


class ExecuteBody(Strict):
    """`confirm` is the cluster's name as a person typed it."""

    model_config = example_bodies(
        {"confirm": "prod-eu", "reason": "more room on broker 3", "wait_ms": 0},
    )

    confirm: Annotated[str, StringConstraints(max_length=200)]
    reason: ShortText
    wait_ms: Annotated[int, Field(ge=0, le=30_000)] = 10_000


class RevertBody(Strict):
    model_config = example_bodies(
        {"reason": "it was for the test only"},
    )
    reason: ShortText | None = None


class BootstrapBody(Strict):
    """Bytes of the leader's local log, and how much of it is in the remote tier too."""

    model_config = example_bodies(
        {"size_bytes": 2_000_000_000, "tiered_percent": 85},
    )

    size_bytes: Annotated[int, Field(ge=1, le=2**53)] = 2_000_000_000
    tiered_percent: Annotated[int, Field(ge=0, le=100)] = 85


class BootstrapAnswer(BaseModel):
    """The race that is going on, else the last one; null: there was none since the start."""

    run: BootstrapRun | None


class EmptyBody(Strict):
    """Takes nothing."""

    model_config = example_bodies({})


class LimitBody(Strict):
    """The limit of each broker for what it sends and for what it takes."""

    model_config = example_bodies(
        {"throttle_bytes_per_s": 100_000_000},
    )

    throttle_bytes_per_s: Annotated[int, Field(ge=1_000, le=2**53)]


class ProcessAnswer(BaseModel):
    process: str
    state: str
    message: str | None
    updated_ms: int
    age_ms: int
    stale: bool
    alive: bool
    detail: dict[str, Any] | None


class ClusterAnswer(BaseModel):
    """The cluster as it was last seen. `cluster` is null before the first sample, `checked_ms` is when the observer
    last had all its answers, and `blind_spots` is what is not seen now, the worst first."""

    cluster_id: str
    name: str
    kind: str
    changes_allowed: bool
    answers: bool
    away_since_ms: int | None
    away_reason: str | None
    now_ms: int
    checked_ms: int | None
    blind_spots: list[BlindSpot]
    data_version: int
    cluster: ClusterRow | None
    totals: ClusterSample | None
    processes: list[ProcessAnswer]


class BrokersAnswer(BaseModel):
    """`numbers` are of the brokers' own metrics; null: not known, and `error` says why."""

    items: list[BrokerRow]
    numbers: list[BrokerNumbers]


class ReadersAnswer(BaseModel):
    """Groups whose committed offset is below the local log, as of `asked_ms`; null: not asked yet. Of those without
    members the ones that have committed in the last ten minutes; `groups_*` is how many were read of each kind,
    and `left_out` says which were not; null: all were."""

    items: list[RemoteReads]
    asked_ms: int | None
    error: str | None
    groups_with_members: int = 0
    groups_without_members: int = 0
    left_out: str | None = None


class PartitionsAnswer(BaseModel):
    total: int
    items: list[PartitionRow]


class PartitionAnswer(BaseModel):
    """`durability`: which losses of disks its records survive that were acknowledged to acks=all; `eligible_leaders`:
    who may lead besides the ISR, and `next_leader` the same in words."""

    partition: PartitionRow
    replicas: list[ReplicaRow]
    segments: list[SegmentRow]
    durability: Durability
    eligible_leaders: EligibleLeaders
    next_leader: str


class ConfigAnswer(BaseModel):
    total: int
    items: list[ConfigRow]


class PlanAnswer(BaseModel):
    plan: OperationRow


class DryRunAnswer(BaseModel):
    """The plan that would be made. Nothing has been changed, nothing was stored."""

    kind: str
    refused: bool
    snapshot: dict[str, Any]
    diff: dict[str, Any]
    checks: list[dict[str, Any]]
    cli: list[str]
    estimate: dict[str, Any] | None


class PlansAnswer(BaseModel):
    """`next_before_id` is the `before_id` of the next page; null: there is none."""

    items: list[OperationRow]
    next_before_id: int | None


class AuditAnswer(BaseModel):
    """`next_before_id` is the `before_id` of the next page; null: there is none."""

    items: list[AuditRow]
    next_before_id: int | None


class QuorumReplica(BaseModel):
    """`lag_records` null: not known. Times in ms since the epoch, null: never."""

    node_id: int
    role: Literal["voter", "observer"]
    log_end_offset: int | None
    lag_records: int | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    directory_id: str | None = None
    # False: a voter whose disk is new or older than it was, and that has not caught up: it neither votes nor counts.
    counted: bool = True


class QuorumSnapshot(BaseModel):
    """The leader's last snapshot; `cause` says why it is not known."""

    generated_ms: int | None
    bytes: int | None
    cause: str | None


class FeatureLevels(BaseModel):
    """The cluster's level of a feature (0: off) and the highest that its brokers support."""

    level: int
    max_level: int


class QuorumSeen(BaseModel):
    """The last reading; `cause` not null: it failed, and what else is here is of `seen_ms`, or missing."""

    seen_ms: int | None = None
    leader_id: int | None = None
    leader_epoch: int | None = None
    high_watermark: int | None = None
    replicas: list[QuorumReplica] = []
    features: dict[str, FeatureLevels] = {}
    snapshot: QuorumSnapshot | None = None
    cause: str | None = None


class QuorumAnswer(BaseModel):
    """`quorum` null: not read yet."""

    now_ms: int
    quorum: QuorumSeen | None


class FaultBody(Strict):
    """`broker` only for the scenarios that take one; none: the last that may be killed."""

    model_config = example_bodies(
        {"scenario": "store-away"},
        {"scenario": "broker-kill", "broker": 3},
    )

    scenario: Annotated[str, StringConstraints(min_length=1, max_length=60)]
    broker: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


class FaultsAnswer(BaseModel):
    """Faults of the lab and the injected one; `refusal`: why none can be injected here. `brokers` may be killed."""

    scenarios: list[Scenario]
    refusal: str | None
    brokers: list[int]
    takes_broker: list[str]
    run: FaultRun | None


class FindingAnswer(BaseModel):
    """A finding with the page that says what to do."""

    finding: Finding
    runbook: str


class FindingsAnswer(BaseModel):
    """`next_before_id` is the `before_id` of the next page; null: there is none."""

    items: list[Finding]
    next_before_id: int | None


class HealthAnswer(BaseModel):
    status: Literal["up"]
    pid: int
    started_ms: int


class ReadyAnswer(BaseModel):
    """Each check with null when it passes, else with one sentence; `starting`: the program is not up yet itself.

    `missing_rights`: lines of docs/attach.md that our principal lacks; a product without some of them sees less and is
    ready. `database_responded_ms`: when the database last took a read or a write of this process.
    """

    ready: bool
    starting: bool
    checks: dict[str, str | None]
    missing_rights: list[str]
    database_responded_ms: int | None


class ProblemAnswer(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:ebbline:problem:not-found",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "There is no plan 7 of this cluster.",
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
