"""A stage for KIP-405's scenarios: brokers A, B and C around one partition, and a transcript of all that can be seen.

Each step is one line of what happens, what the follower asked and was answered, and then the whole state: offsets and
epoch cache of every replica, segments in the remote tier, and what a consumer gets at each offset.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.partition.elections import UNCLEAN, elect_leaders
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import iter_batches, iter_records
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.segment_state import SegmentState
from tests.unit.engine.replica.nodes import Nodes

TOPIC: Final = "kip405"
A, B, C = 1, 2, 3
NAMES: Final = {A: "A", B: "B", C: "C"}
FLAG: Final = "follower_fetch_last_tiered_offset_enable"
SETTINGS: Final = {
    "remote_storage_enable": "true",
    "retention_ms": "-1",
    # Every closed and copied segment goes when `forget_local` is called, and only then.
    "local_retention_bytes": "1",
}
# Whether a Fetch meets an election is chance; what follows from it is not.
ELECTION_ERRORS: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
SENTINELS: Final = {
    -1: "LATEST",
    -2: "EARLIEST",
    -4: "EARLIEST_LOCAL",
    -6: "EARLIEST_PENDING_UPLOAD",
}


class Stage:
    """Use on the loop that the nodes run on."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.lines: list[str] = []
        self._requests: list[str] = []
        self._uuids: dict[bytes, str] = {}
        self._messages = 0
        nodes.listen = self._listen

    # --- what happens

    def create(self, *replicas: int, **settings: str) -> None:
        self.nodes.create(TOPIC, list(replicas), **{**SETTINGS, **settings})

    @property
    def leader(self) -> int:
        return self.nodes.play.partition(TOPIC).leader

    def log(self, node: int) -> Any:
        return self.nodes[node].partition(TOPIC).log

    async def produce(self, *texts: str) -> None:
        """One record a batch, to the leader; acknowledged by the ISR."""
        for text in texts:
            row = await self.nodes.produce(self.leader, TOPIC, text.encode())
            assert row.error_code == 0, row

    def roll(self) -> None:
        """The leader closes its active segment."""
        self.log(self.leader).roll()

    async def copied(self, last_offset: int) -> None:
        """The leader has copied everything up to an offset, and every replica that is up knows it."""
        for node in self.replicas_up():
            await self.nodes.tiered_up_to(node, TOPIC, last_offset)

    async def forget_local(self, node: int) -> None:
        """Local retention on one broker."""
        await self.nodes.retain(node)

    async def new_epoch(self) -> None:
        """The leader is elected again, as after a blink of its connection."""
        node, topic_id = self.leader, self.nodes.play.image.topic_ids[TOPIC]

        def elect(_: MetadataImage) -> ControllerResult[None]:
            record = m.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=node)
            return ControllerResult((record,), None)

        self.nodes.apply(elect)
        await self.settle()

    def flag(self, node: int, value: bool) -> None:
        self.nodes.config(BROKER_RESOURCE, str(node), **{FLAG: str(value).lower()})

    def configure(self, **settings: str) -> None:
        self.nodes.config(TOPIC_RESOURCE, TOPIC, **settings)

    async def stop(self, node: int) -> None:
        await self.nodes.stop(node)

    async def lose(self, node: int, records: int) -> None:
        """A stopped broker's disk turns out to hold only its first records: the others were never written through."""
        folder = self.nodes.folder / str(node)
        path = folder / f"{TOPIC}-0" / f"{0:020d}.log"
        data = path.read_bytes()
        ends = [position + header.size_bytes for position, header in iter_batches(data)]
        path.write_bytes(data[: ends[records - 1]])
        (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)

    async def wipe(self, node: int) -> None:
        """A stopped broker gets an empty disk."""
        folder = self.nodes.folder / str(node) / f"{TOPIC}-0"
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    async def restart(self, node: int, *, crashed: bool = False) -> None:
        """After a crash an operator has to say that what is left of its log may lead."""
        await self.nodes.restart(node, clean=not crashed)
        if crashed:
            request = m.ElectLeadersRequest(
                election_type=UNCLEAN,
                topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])],
            )
            self.nodes.apply(partial(elect_leaders, request=request, config=self.nodes.play.config))
        manager = self.nodes[node].remote
        assert manager is not None
        tip = self.log(node).topic_id_partition
        await self.nodes.until("the remote log metadata is read", lambda: manager.is_ready(tip))

    async def settle(self) -> None:
        """All replicas that are up are in sync, know it, and agree on log end, high watermark and what is remote."""
        registration = self.nodes.play.partition(TOPIC)
        up = self.replicas_up()
        await self.nodes.until("the ISR", lambda: set(self.nodes.play.partition(TOPIC).isr) == set(up))

        def same() -> bool:
            logs = [self.log(node) for node in up]
            phases = [self.nodes[node].events.phases(TOPIC)[-1:] for node in up if node != self.leader]
            facts = {(log.log_end_offset, log.high_watermark, log.highest_remote_offset) for log in logs}
            settled = all(last == ["IN_SYNC"] for last in phases)
            return settled and len(facts) == 1 and logs[0].log_end_offset == logs[0].high_watermark

        assert registration.leader in up, registration
        await self.nodes.until("agreement", same)

    def replicas_up(self) -> list[int]:
        return [node for node in sorted(self.nodes.play.partition(TOPIC).replicas) if self.nodes[node].up]

    # --- what is seen

    async def show(self, what: str) -> None:
        """A step: what happened, what followers asked meanwhile, and how everything is now."""
        self.lines += ["", f"== {what}"]
        self.lines += [f"   {line}" for line in self._requests]
        self._requests.clear()
        registration = self.nodes.play.partition(TOPIC)
        isr = " ".join(NAMES[node] for node in sorted(registration.isr))
        self.lines.append(f"   leader epoch {registration.leader_epoch}, ISR {isr}")
        for node in sorted(registration.replicas):
            self.lines.append(f"   {self._replica(node)}")
        self._show_remote()
        for node in self.replicas_up():
            await self._show_consumer(node)

    def _replica(self, node: int) -> str:
        if not self.nodes[node].up:
            return f"{NAMES[node]} stopped"
        log = self.log(node)
        role = "leads  " if node == self.leader else "follows"
        return (
            f"{NAMES[node]} {role} log start {log.log_start_offset}, {_local(log)}, high watermark"
            f" {log.high_watermark}, copied up to {log.highest_remote_offset}, epochs {_epochs(log)}"
        )

    def _show_remote(self) -> None:
        node = next(iter(self.replicas_up()))
        segments = self.segments(node)
        self.lines += [f"   remote {self._segment(segment)}" for segment in segments] or ["   remote nothing"]

    def segments(self, node: int) -> list[SegmentMetadata]:
        """Segments in the remote tier as a broker's metadata has them, in the order of their copies."""
        manager = self.nodes[node].remote
        assert manager is not None
        tip = self.log(node).topic_id_partition
        finished = [s for s in manager._tier.metadata.segments(tip) if s.state is SegmentState.COPY_SEGMENT_FINISHED]
        for segment in sorted(finished, key=lambda s: (s.event_timestamp_ms, s.start_offset)):
            self._uuids.setdefault(segment.segment_id, f"uuid{len(self._uuids) + 1}")
        return sorted(finished, key=lambda s: self._uuids[s.segment_id])

    def _segment(self, segment: SegmentMetadata) -> str:
        epochs = ", ".join(f"{epoch}:{at}" for epoch, at in segment.segment_leader_epochs)
        return f"{segment.start_offset}-{segment.end_offset} {self._uuids[segment.segment_id]} {{{epochs}}}"

    def show_lookups(self, *pairs: tuple[int, int]) -> None:
        """The segment in which each (epoch, offset) is found, as the leader's metadata says."""
        manager = self.nodes[self.leader].remote
        assert manager is not None
        tip = self.log(self.leader).topic_id_partition
        for epoch, offset in pairs:
            metadata = manager._tier.metadata.lookup(tip, epoch, offset)
            where = "no segment" if metadata is None else self._segment(metadata)
            self.lines.append(f"   lookup epoch {epoch} offset {offset}: {where}")

    async def _show_consumer(self, node: int) -> None:
        log = self.log(node)
        for offset in range(log.high_watermark):
            row = await self.nodes.fetch(node, TOPIC, offset)
            tier = "local " if offset >= log.local_log_start_offset else "remote"
            self.lines.append(f"   consumer at {NAMES[node]}: offset {offset} {tier} {_record(row, offset)}")

    async def show_position(self, offset: int, epoch: int) -> None:
        """The leader's response to a consumer at an offset of an epoch (KIP-320)."""
        node = self.leader
        topics = m.OffsetForLeaderEpochRequest.Topics
        part = topics.Partitions(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        request = m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topics(topic=TOPIC, partitions=[part])])
        partition = (await self.nodes[node].ask(request, 4)).topics[0].partitions[0]
        verdict = "truncated" if partition.end_offset < offset else "valid"
        current = await self.nodes.fetch(node, TOPIC, offset, current_epoch=epoch)
        last = await self.nodes.fetch(node, TOPIC, offset, last_epoch=epoch)
        self.lines += [
            f"   consumer position offset {offset} of epoch {epoch}:",
            f"      OffsetForLeaderEpoch {epoch} -> epoch {partition.leader_epoch} ends at {partition.end_offset}:"
            f" {verdict}",
            f"      Fetch with it as current epoch -> {ErrorCode(current.error_code).name}",
            f"      Fetch with it as last fetched epoch -> {_fetched(last) or 'nothing'}",
        ]

    def show_phases(self, node: int) -> None:
        """The phases of a follower, as its broker reported them; without a wait for metadata, which is random."""
        phases = [phase for phase in self.nodes[node].events.phases(TOPIC) if phase != "WAITING_FOR_METADATA"]
        self.lines.append(f"   phases of {NAMES[node]}: {' -> '.join(phases)}")

    # --- the wire

    def _listen(self, sender: int, receiver: int, request: Message, answer: Message) -> None:
        who = f"{NAMES[sender]} asks {NAMES[receiver]}:"
        if isinstance(request, m.ListOffsetsRequest) and isinstance(answer, m.ListOffsetsResponse):
            timestamp = request.topics[0].partitions[0].timestamp
            row = answer.topics[0].partitions[0]
            said = f"{row.offset} of epoch {row.leader_epoch}" if not row.error_code else ErrorCode(row.error_code).name
            self._requests.append(f"{who} ListOffsets {SENTINELS[timestamp]} -> {said}")
        elif isinstance(request, m.OffsetForLeaderEpochRequest) and isinstance(answer, m.OffsetForLeaderEpochResponse):
            epoch = request.topics[0].partitions[0].leader_epoch
            end = answer.topics[0].partitions[0]
            self._requests.append(
                f"{who} OffsetForLeaderEpoch {epoch} -> epoch {end.leader_epoch} ends at {end.end_offset}"
            )
        elif isinstance(answer, m.FetchResponse):
            for topic in answer.responses:
                for fetched in topic.partitions:
                    if fetched.error_code in ELECTION_ERRORS:
                        continue
                    if (seen := _fetched(fetched)) is not None:
                        self._note_fetch(f"{self._asking(sender)} {who} Fetch -> {seen}")

    def _note_fetch(self, line: str) -> None:
        """The same response to a log that has not changed starts another attempt: only the last one is reported.

        Whether a new replica's metadata is read in time for its first attempt is chance.
        """
        if line in self._requests:
            del self._requests[self._requests.index(line) :]
        self._requests.append(line)

    def _asking(self, node: int) -> str:
        """A follower's log at the moment of an answer, which it has not taken over yet."""
        log = self.log(node)
        return f"({_local(log)}, epochs {_epochs(log)})"


def _local(log: Any) -> str:
    start, end = log.local_log_start_offset, log.log_end_offset
    return f"local {start}..{end - 1}" if start < end else f"nothing local, next {end}"


def _epochs(log: Any) -> str:
    return "".join(f"({epoch},{at})" for epoch, at in log.leader_epochs.entries) or "none"


def _record(row: m.FetchResponse.Responses.Partitions, offset: int) -> str:
    if row.error_code:
        return ErrorCode(row.error_code).name
    data = bytes(row.records or b"")  # type: ignore[arg-type]  # a decoded answer holds one buffer
    for position, header in iter_batches(data):
        for record in iter_records(data, position):
            if record.offset == offset:
                return f"{(record.value or b'').decode()} of epoch {header.leader_epoch}"
    return "nothing"


def _fetched(row: m.FetchResponse.Responses.Partitions) -> str | None:
    """Errors, divergence and records; not the many empty answers."""
    if row.error_code:
        return ErrorCode(row.error_code).name
    if row.diverging_epoch.end_offset >= 0:
        return f"diverging: epoch {row.diverging_epoch.epoch} ends at {row.diverging_epoch.end_offset}"
    data = bytes(row.records or b"")  # type: ignore[arg-type]  # a decoded answer holds one buffer
    headers = [header for _, header in iter_batches(data)]
    return f"records {headers[0].base_offset}..{headers[-1].last_offset}" if headers else None


@contextlib.asynccontextmanager
async def stage(folder: Path, overlap: str) -> AsyncIterator[Stage]:
    """Three brokers with tiering; the metadata of overlapping segments is kept as the setting says."""
    async with Nodes(folder, tiered=True, remote_log_metadata_overlap=overlap) as nodes:
        yield Stage(nodes)
