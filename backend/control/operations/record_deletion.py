"""Kind `delete_records`: removes the beginning of partitions, local and remote, for good (KIP-107)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from backend.control.formatting import grouped, in_bytes
from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import until_settled
from backend.control.gateway.requests.config_requests import describe_topics
from backend.control.gateway.requests.delete_records_request import delete_records
from backend.control.gateway.requests.metadata_requests import fetch_cluster
from backend.control.gateway.requests.offset_requests import CONSUMER, list_offsets
from backend.control.operations.lifecycle.plan_draft import (
    Change,
    CheckOutcome,
    DialogTexts,
    Draft,
    JsonObject,
    PlanCheck,
    PlanVerification,
)
from backend.control.operations.operation_errors import InvalidInput
from backend.control.operations.operation_kind import OperationContext, SingleRequestKind
from backend.control.operations.reassign.reassignment_inputs import PartitionName
from backend.protocol import offset_timestamps
from backend.protocol.errors import ErrorCode, KafkaError, error_for
from backend.store.queries import partitions
from backend.tiering.ids import TopicPartition, uuid_text

CLEANUP_POLICY: Final = "cleanup.policy"
# An election takes a second or two; the page waits so long for the answer.
SETTLE_S: Final = 10.0
# One request per leader; a thousand offsets are 20 kB.
PARTITIONS_MAX: Final = 1_000


class DeleteBelow(PartitionName):
    """Everything below `offset` goes; the offset itself stays."""

    offset: Annotated[int, Field(ge=0, le=2**63 - 1)]


class DeleteInputs(BaseModel):
    """The offsets at which the logs are to begin."""

    model_config = ConfigDict(extra="forbid", strict=True)

    partitions: Annotated[list[DeleteBelow], Field(min_length=1, max_length=PARTITIONS_MAX)]

    @property
    def before(self) -> dict[TopicPartition, int]:
        return {below.key: below.offset for below in self.partitions}


class DeleteRecords(SingleRequestKind[DeleteInputs]):
    """See `OperationKind`."""

    name = "delete_records"
    inputs = DeleteInputs

    async def snapshot(self, context: OperationContext, inputs: DeleteInputs) -> JsonObject:
        """Log starts; under "seen" the high watermarks, which move on."""
        if len(inputs.before) != len(inputs.partitions):
            raise InvalidInput("A partition is named twice.")
        leaders, ids = await _leaders(context, inputs)
        starts = await _offsets(context, leaders, offset_timestamps.EARLIEST)
        ends = await _offsets(context, leaders, offset_timestamps.LATEST)
        compacted = await _compacted(context, {tp.topic for tp in inputs.before})
        return {
            "partitions": {
                f"{tp.topic}-{tp.partition}": {"topic_id": ids[tp], "log_start": starts[tp]} for tp in inputs.before
            },
            "seen": {
                f"{tp.topic}-{tp.partition}": {"high_watermark": ends[tp], "deletes": tp.topic not in compacted}
                for tp in inputs.before
            },
        }

    async def draft(self, context: OperationContext, inputs: DeleteInputs, snapshot: JsonObject) -> Draft:
        starts = {key: part["log_start"] for key, part in snapshot["partitions"].items()}
        ends = {key: part["high_watermark"] for key, part in snapshot["seen"].items()}
        topics = {below.topic for below in inputs.partitions}
        rows = await context.database.read(lambda c: partitions.partitions(c, context.cluster_id, tiered_only=False))
        sizes = {f"{r.topic}-{r.partition}": r for r in rows if r.topic in topics}
        removed, bytes_ = 0, 0
        lines = []
        for below in inputs.partitions:
            key = f"{below.topic}-{below.partition}"
            count = max(0, min(below.offset, ends[key]) - starts[key])
            removed += count
            bytes_ += _bytes(sizes.get(key), count)
            lines.append(f"{key}: [{grouped(starts[key])}, {grouped(below.offset)})")
        first = inputs.partitions[0]
        name = f"{first.topic}-{first.partition}"
        what = name if len(inputs.partitions) == 1 else f"{len(inputs.partitions)} partitions"
        return Draft(
            object=what,
            changes=tuple(
                Change(f"{b.topic}-{b.partition}", "log start", str(starts[f"{b.topic}-{b.partition}"]), str(b.offset))
                for b in inputs.partitions
            ),
            checks=tuple(_checks(inputs, starts, ends, snapshot["seen"])),
            cli=tuple(cli(inputs)),
            words=DialogTexts(
                title=f"Delete records of {what}"
                + (f" below {grouped(first.offset)}" if len(inputs.partitions) == 1 else ""),
                intro=f"Cluster {context.cluster_name}.",
                effect=f"Removes {grouped(removed)} records, about {in_bytes(bytes_)} local and remote, for all "
                "consumers, for good.",
                risk="This cannot be reverted. A consumer that has not read them starts where its reset policy says.",
                keep="Keep records",
                act="Delete records",
            ),
            estimate={"records": removed, "bytes": bytes_},
            extra={"lines": lines[:12]},
        )

    async def apply(self, context: OperationContext, inputs: DeleteInputs, snapshot: JsonObject) -> None:
        """Asks again where a leader has moved meanwhile, or another is being elected.

        Raises KafkaError with the first refusal, which also says of how many other partitions the records are gone.
        """
        left, refused = dict(inputs.before), dict[TopicPartition, KafkaError]()

        async def once() -> None:
            try:
                leaders, _ = await _leaders(context, inputs)
            except InvalidInput as error:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)) from error
            _, errors = await delete_records(context.gateway, {tp: leaders[tp] for tp in left}, left)
            refused.update({tp: error for tp, error in errors.items() if not error.retriable})
            for tp in [tp for tp in left if tp not in errors or tp in refused]:
                del left[tp]
            for tp in left:
                raise errors[tp]  # another leader, or this one in a moment, may do it

        try:
            await until_settled(once, timeout_s=SETTLE_S)
        except KafkaError as error:
            refused.update(dict.fromkeys(left, error))
        if refused:
            first = next(iter(refused.values()))
            done = len(inputs.before) - len(refused)
            others = f"; those of {done} other partition{'' if done == 1 else 's'} are gone" if done else ""
            raise KafkaError(first.code, first.message + others)

    async def verify(self, context: OperationContext, inputs: DeleteInputs, snapshot: JsonObject) -> PlanVerification:
        leaders, _ = await _leaders(context, inputs)
        starts = await _offsets(context, leaders, offset_timestamps.EARLIEST)
        wrong = [tp for tp, offset in inputs.before.items() if starts[tp] < offset]
        if wrong:
            tp = wrong[0]
            return PlanVerification(False, f"{tp.topic}-{tp.partition} still begins at {grouped(starts[tp])}.")
        return PlanVerification(True, f"All {len(starts)} logs begin where they were to.")

    def revert_inputs(self, inputs: DeleteInputs, snapshot: JsonObject) -> None:
        """Records do not come back."""


async def _leaders(
    context: OperationContext, inputs: DeleteInputs
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    view = await fetch_cluster(context.gateway, lane=Lane.ACT)
    by_partition = {p.topic_partition: p for p in view.partitions}
    for tp in inputs.before:
        if tp not in by_partition:
            raise InvalidInput(f"There is no partition {tp.topic}-{tp.partition}: look at the topic's partitions.")
        if by_partition[tp].leader < 0:
            raise InvalidInput(f"{tp.topic}-{tp.partition} has no leader now: bring a replica back first.")
    return {tp: by_partition[tp].leader for tp in inputs.before}, {
        tp: uuid_text(by_partition[tp].topic_id) for tp in inputs.before
    }


async def _compacted(context: OperationContext, topics: set[str]) -> set[str]:
    """Topics that keep the newest record of each key; a topic whose settings we may not see is taken for another."""
    described = await describe_topics(context.gateway, sorted(topics), names=[CLEANUP_POLICY], lane=Lane.ACT)
    policies = {topic: entries.get(CLEANUP_POLICY) for topic, entries in described.items()}
    return {topic for topic, policy in policies.items() if policy is not None and policy.value == "compact"}


async def _offsets(
    context: OperationContext, leaders: Mapping[TopicPartition, int], which: int
) -> dict[TopicPartition, int]:
    result: dict[TopicPartition, int] = {}
    for leader in sorted(set(leaders.values())):
        own = [tp for tp, node in leaders.items() if node == leader]
        listed_offsets = await list_offsets(context.gateway, leader, which, own, replica_id=CONSUMER, lane=Lane.ACT)
        for tp, listed in listed_offsets.items():
            if listed.error is not ErrorCode.NONE:
                raise error_for(int(listed.error), f"{tp.topic}-{tp.partition} does not tell its offsets")
            result[tp] = listed.offset
    return result


def _bytes(row: partitions.PartitionRow | None, count: int) -> int:
    """Records are taken to be as large as those in the remote tier, which are the oldest; else as those on disk."""
    if row is None:
        return 0
    tiered_end = None if row.latest_tiered_offset is None else row.latest_tiered_offset + 1
    remote = (row.ledger_bytes, row.log_start_offset, tiered_end)
    local = (row.local_log_bytes, row.local_log_start_offset, row.log_end_offset)
    for size_bytes, start, end in (remote, local):
        if size_bytes and start is not None and end is not None and end > start:
            return round(size_bytes * count / (end - start))
    return 0


def _checks(
    inputs: DeleteInputs, starts: Mapping[str, int], ends: Mapping[str, int], seen: Mapping[str, JsonObject]
) -> list[PlanCheck]:
    checks = []
    compacted = sorted({b.topic for b in inputs.partitions if not seen[f"{b.topic}-{b.partition}"]["deletes"]})
    if compacted:
        text = f"{', '.join(compacted[:5])}: of a compacted topic no records can be deleted by offset. Leave it out."
        checks.append(PlanCheck("policy", CheckOutcome.REFUSED, text))
    above = [b for b in inputs.partitions if b.offset > ends[f"{b.topic}-{b.partition}"]]
    if above:
        b = above[0]
        key = f"{b.topic}-{b.partition}"
        text = f"{key} ends at {grouped(ends[key])}: choose an offset up to there."
        checks.append(PlanCheck("range", CheckOutcome.REFUSED, text))
    if all(b.offset <= starts[f"{b.topic}-{b.partition}"] for b in inputs.partitions):
        checks.append(
            PlanCheck("change", CheckOutcome.REFUSED, "The logs begin there already: there is nothing to delete.")
        )
    whole = [f"{b.topic}-{b.partition}" for b in inputs.partitions if b.offset == ends[f"{b.topic}-{b.partition}"]]
    if whole and not checks:
        text = f"{', '.join(whole[:5])}: nothing is left; of a tiered topic a new replica may then not be able to join."
        checks.append(PlanCheck("whole-log", CheckOutcome.WARNING, text))
    return checks or [PlanCheck("change", CheckOutcome.OK, "There is something to delete.")]


def cli(inputs: DeleteInputs) -> list[str]:
    """The same with Kafka's own tool."""
    listed = [{"topic": b.topic, "partition": b.partition, "offset": b.offset} for b in inputs.partitions]
    document = json.dumps({"partitions": listed, "version": 1}, separators=(",", ":"))
    tool = "kafka-delete-records.sh --bootstrap-server $BOOTSTRAP --offset-json-file offsets.json"
    return [f"echo '{document}' > offsets.json", tool]
