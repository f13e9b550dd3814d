"""Inputs of a reassignment: an exact assignment, or an action that is made exact when the plan is made."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from backend.tiering.ids import TopicPartition

# A plan of 10,000 partitions is about 1 MB of JSON in the database, and three answers of that size while it is made.
PARTITIONS_MAX: Final = 10_000
# Without a selection these look at every partition of the cluster.
WITHOUT_SELECTION: Final = ("drain", "spread_leaders", "swap_leaders")
TopicNameInput = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
PartitionIndex = Annotated[int, Field(ge=0, le=2**31 - 1)]
BrokerIdInput = Annotated[int, Field(ge=0, le=2**31 - 1)]
# Below 1 kB/s not even the records that come meanwhile would be copied in any cluster.
BytesPerSecond = Annotated[int, Field(ge=1_000, le=2**53)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PartitionName(_Strict):
    topic: TopicNameInput
    partition: PartitionIndex

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ReplicaAssignment(PartitionName):
    """The replicas that a partition is to have; the first one is its preferred leader."""

    replicas: Annotated[list[BrokerIdInput], Field(min_length=1, max_length=100)]


class ReassignInputs(_Strict):
    """`assign` takes `assignments` as they are; every other action fills them in for the selected partitions.

    add, remove: `brokers` join, or leave. move: from the first of `brokers` to the second. replication_factor: to
    `factor` replicas. drain: nothing stays on `brokers`. spread_leaders: another first replica where a broker is first
    too often. swap_leaders: where one of the two `brokers` is first and the other has a replica too, they change
    places. Without `topics` and `partitions` drain, spread_leaders and swap_leaders take all.
    """

    action: Literal[
        "assign", "add", "remove", "move", "replication_factor", "drain", "spread_leaders", "swap_leaders"
    ] = "assign"
    assignments: Annotated[list[ReplicaAssignment], Field(max_length=PARTITIONS_MAX)] = []
    topics: Annotated[list[TopicNameInput], Field(max_length=1_000)] = []
    partitions: Annotated[list[PartitionName], Field(max_length=PARTITIONS_MAX)] = []
    brokers: Annotated[list[BrokerIdInput], Field(max_length=100)] = []
    factor: Annotated[int, Field(ge=1, le=100)] | None = None
    throttle_bytes_per_s: BytesPerSecond | None = None
    unthrottled: bool = False
    """Copy as fast as it goes: has to be said, else a plan that copies something needs a limit."""
    at_once: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Partitions that move at the same time; a paused plan lets these end and begins no other."""
    elect: bool = False
    """Also make the first replica of each list the leader at the end."""

    @model_validator(mode="after")
    def _fits(self) -> ReassignInputs:
        if self.action == "assign" and not self.assignments:
            raise ValueError("give assignments with the action assign")
        if self.action in ("add", "remove", "drain") and not self.brokers:
            raise ValueError(f"give brokers with the action {self.action}")
        if self.action == "move" and (len(self.brokers) != 2 or self.brokers[0] == self.brokers[1]):
            raise ValueError("give two brokers with the action move: from, to")
        if self.action == "swap_leaders" and len(set(self.brokers)) != 2:
            raise ValueError("give two brokers with the action swap_leaders")
        if (self.action == "replication_factor") != (self.factor is not None):
            raise ValueError("give factor with the action replication_factor, and only with it")
        selects = bool(self.topics or self.partitions or self.assignments)
        if not selects and self.action not in WITHOUT_SELECTION:
            raise ValueError("select topics or partitions")
        keys = [assignment.key for assignment in self.assignments]
        if len(keys) != len(set(keys)):
            raise ValueError("a partition is assigned twice")
        if self.unthrottled and self.throttle_bytes_per_s is not None:
            raise ValueError("give a limit or unthrottled, not both")
        return self

    @property
    def targets(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {assignment.key: tuple(assignment.replicas) for assignment in self.assignments}
