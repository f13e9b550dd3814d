"""Faults while a replica of a tiered partition starts: nothing local is dropped first, one sentence says what it waits
for (in the log and on the page), attempts come with the back-off, and it goes on by itself once the trouble is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.components.follower.replica_phases import describe_phase
from backend.control.observer.watches.engine_event_reader import exact_phase
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from backend.engine.replica.fetchers.followed_partition import FollowedPartition
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message
from backend.protocol.offset_timestamps import EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST
from backend.tiering.phase_inference import FollowerObservation, infer_phase
from tests.unit.app.partition_rows import replica_row
from tests.unit.engine.log.test_full_disk import files_of_at_most
from tests.unit.engine.replica.nodes import SMALL_SEGMENTS, Nodes, play
from tests.unit.engine.replica.test_replication import delete_records

TOPIC = "orders"
FLAG = {"follower_fetch_last_tiered_offset_enable": "true"}
NEW = 3
KAFKA_4_2_IV0 = 28


async def remote_up_to_5(nodes: Nodes) -> None:
    """0-5 remote only, 6 local, on brokers 1 and 2."""
    nodes.create(TOPIC, [1, 2], **SMALL_SEGMENTS, local_retention_bytes="1")
    for number in range(7):
        assert (await nodes.produce(1, TOPIC, b"v%d" % number)).error_code == 0
    for node in (1, 2):
        await nodes.tiered_up_to(node, TOPIC, 5)
    await nodes.until("the high watermark", lambda: nodes[2].offsets(TOPIC)[2] == 7)
    await nodes.retain(1, 2)
    assert nodes[1].offsets(TOPIC) == (0, 6, 7, 7)


def reported_phases(nodes: Nodes, node: int = NEW) -> list[dict[str, Any]]:
    """The phases of the replica that the broker has reported."""
    return [seen for kind, seen in nodes[node].events.seen if kind == "phase" and seen["topic"] == TOPIC]


async def behind_the_local_log(nodes: Nodes) -> None:
    """0-5 remote only, 6 local, on brokers 1 and 2; broker 3 is down and has 0 and 1."""
    nodes.create(TOPIC, [1, 2, NEW], **SMALL_SEGMENTS, local_retention_bytes="1")
    for number in range(2):
        await nodes.produce(1, TOPIC, b"v%d" % number)
    await nodes.stop(NEW)
    await nodes.in_sync(TOPIC, 1, 2)
    for number in range(2, 7):
        await nodes.produce(1, TOPIC, b"v%d" % number)
    for node in (1, 2):
        await nodes.tiered_up_to(node, TOPIC, 5)
    await nodes.until("the high watermark", lambda: nodes[2].offsets(TOPIC)[2] == 7)
    await nodes.retain(1, 2)
    assert nodes[1].offsets(TOPIC) == (0, 6, 7, 7)


def elect(nodes: Nodes, leader: int) -> None:
    """The leader is elected again: a new epoch."""
    topic_id = nodes.play.image.topic_ids[TOPIC]
    record = m.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader)
    nodes.apply(lambda _: ControllerResult((record,), None))


def has_what_it_had(nodes: Nodes) -> bool:
    return nodes[NEW].values(TOPIC) == [(0, b"v0"), (1, b"v1")]


def on_the_page(reported: Mapping[str, Any]) -> str:
    """The dashboard's sentence about a replica with this reported phase."""
    exact = exact_phase(dict(reported))
    _, seen = infer_phase(None, FollowerObservation(1, False, True, 0, 0, 0, 0, 6, 7, tiered=True, exact=exact))
    assert seen.phase is not None
    row = replica_row(NEW, phase=seen.phase.value, phase_source=seen.source, evidence=dict(seen.evidence))
    return describe_phase(row, dict(seen.evidence))


@pytest.fixture(autouse=True)
def broker_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log lines of the brokers about replicas."""
    caplog.set_level(logging.INFO, "backend.engine.replica")
    return caplog


async def waits(
    nodes: Nodes, sentence: str, log: pytest.LogCaptureFixture, *, phase: str = "DELAYED", node: int = NEW
) -> None:
    """Two attempts and more have failed for this reason, in this phase; the broker's log says it with the same words.

    No attempt came before the back-off of the one before was over.
    """
    began_ms: list[float] = []

    refuse = nodes.refuse

    def begins(sender: int, receiver: int, request: Message) -> ErrorCode | None:
        asks = isinstance(request, m.ListOffsetsRequest) and request.topics[0].partitions[0].timestamp == EARLIEST
        # A request before the first failure may have overtaken the metadata of the assignment.
        if asks and sender == node and any(row["phase"] == phase for row in reported_phases(nodes, node)):
            began_ms.append(nodes[node].ports.clock.monotonic_ms())
        return refuse(sender, receiver, request)

    nodes.refuse = begins

    def seen() -> bool:
        return any(
            row["phase"] == phase and row["attempts"] >= 2 and sentence in row["evidence"]["reason"]
            for row in reported_phases(nodes, node)
        )

    try:
        await nodes.until(f"the replica waits: {sentence}", seen)
    except AssertionError as error:
        raise AssertionError(f"{error}; told was {reported_phases(nodes, node)}") from error
    [reason] = {
        row["evidence"]["reason"] for row in reported_phases(nodes, node) if sentence in row["evidence"]["reason"]
    }
    assert "\n" not in reason
    assert any(f"is {phase} at offset" in line and line.endswith(reason) for line in log.messages)
    pages = [on_the_page(row) for row in reported_phases(nodes, node) if sentence in row["evidence"]["reason"]]
    assert all(page[1:].startswith(reason[1:]) for page in pages), pages
    if phase == "DELAYED":
        await nodes.until("two more attempts", lambda: len(began_ms) >= 3)
        back_off_ms = nodes[node].config.replica_fetch_backoff_ms
        # A timer of the event loop may end one tick of its clock early.
        pauses_ms = [later - earlier for earlier, later in pairwise(began_ms)]
        assert min(pauses_ms) >= back_off_ms - 1, pauses_ms


async def joins(nodes: Nodes, start: int = 6) -> None:
    """The replica is in sync and whole."""
    await nodes.in_sync(TOPIC, 1, 2, NEW)
    await nodes.until("the end", lambda: nodes[NEW].offsets(TOPIC) == (0, start, 7, 7))
    leader, replica = (nodes[node].partition(TOPIC).log for node in (1, NEW))
    assert replica.leader_epochs.entries == leader.leader_epochs.entries
    rows = [await nodes.fetch(NEW, TOPIC, offset) for offset in range(7)]
    assert all(row.error_code == 0 and row.records for row in rows)


@pytest.mark.parametrize("flag", [False, True], ids=["flag off", "flag on"])
def test_it_waits_for_remote_log_metadata_that_is_still_being_read(
    tmp_path: Path, broker_log: pytest.LogCaptureFixture, flag: bool
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await remote_up_to_5(nodes)
            if flag:
                nodes.config(BROKER_RESOURCE, str(NEW), **FLAG)
            nodes[NEW].metadata_topic.down = True
            await nodes.reassign(TOPIC, 1, 2, NEW)
            await waits(nodes, "is still being read", broker_log, phase="WAITING_FOR_METADATA")
            assert nodes[NEW].offsets(TOPIC) == (0, 0, 0, 0)
            nodes[NEW].metadata_topic.down = False
            await joins(nodes)

    play(run)


def spoilt(data: bytes) -> bytes:
    return b"no index at all" + data[:3]


def emptied(data: bytes) -> bytes:
    return data[:0]


@pytest.mark.parametrize(
    ("index", "spoil", "sentence"),
    [
        ("*", None, "leader_epoch_checkpoint"),
        ("leader_epoch_checkpoint", None, "leader_epoch_checkpoint"),
        ("leader_epoch_checkpoint", spoilt, "cannot be read"),
        ("leader_epoch_checkpoint", emptied, "cannot be read"),
        ("snapshot", None, "snapshot"),
        ("snapshot", spoilt, "snapshot"),
    ],
    ids=[
        "segment missing",
        "epochs missing",
        "epochs damaged",
        "epochs emptied",
        "producers missing",
        "producers damaged",
    ],
)
def test_it_waits_for_an_index_that_is_missing_or_damaged(
    tmp_path: Path,
    broker_log: pytest.LogCaptureFixture,
    index: str,
    spoil: Callable[[bytes], bytes] | None,
    sentence: str,
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True, replica_lag_time_max_ms="300") as nodes:
            await behind_the_local_log(nodes)
            good = {path: path.read_bytes() for path in (tmp_path / "remote").rglob(f"00000000000000000004-*.{index}")}
            assert len(good) == (5 if index == "*" else 1)
            for path, data in good.items():
                path.unlink()
                if spoil is not None:
                    path.write_bytes(spoil(data))
            await nodes.restart(NEW)
            await waits(nodes, sentence, broker_log)
            assert has_what_it_had(nodes)
            for path, data in good.items():
                path.write_bytes(data)
            await joins(nodes)

    play(run)


def test_it_waits_for_a_leader_that_is_too_old_for_the_question(
    tmp_path: Path, broker_log: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await remote_up_to_5(nodes)
            nodes.config(BROKER_RESOURCE, str(NEW), **FLAG)

            def too_old(sender: int, receiver: int, request: Message) -> ErrorCode | None:
                asks = isinstance(request, m.ListOffsetsRequest) and request.topics[0].partitions[0].timestamp == -6
                return ErrorCode.UNSUPPORTED_VERSION if asks and sender == NEW else None

            nodes.refuse = too_old
            await nodes.reassign(TOPIC, 1, 2, NEW)
            await waits(nodes, "version", broker_log)
            assert nodes[NEW].offsets(TOPIC) == (0, 0, 0, 0)
            # The way out without a newer leader: the flag off.
            nodes.config(BROKER_RESOURCE, str(NEW), follower_fetch_last_tiered_offset_enable="false")
            await joins(nodes)

    play(run)


def test_it_waits_for_a_configuration_that_makes_the_topic_tiered(
    tmp_path: Path, broker_log: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            settings = {**SMALL_SEGMENTS, "remote_storage_enable": "false", "local_retention_bytes": "1"}
            nodes.create(TOPIC, [1, 2], **settings)
            nodes.cut |= {(NEW, 1)}
            await nodes.reassign(TOPIC, 1, 2, NEW)
            publish, nodes.publish = nodes.publish, lambda *_: publish(1, 2)  # type: ignore[method-assign]  # news is late
            nodes.config(TOPIC_RESOURCE, TOPIC, remote_storage_enable="true")
            for number in range(7):
                assert (await nodes.produce(1, TOPIC, b"v%d" % number)).error_code == 0
            await nodes.tiered_up_to(1, TOPIC, 5)
            await nodes.retain(1)
            nodes.cut.clear()
            await waits(nodes, "configuration has not reached this broker yet", broker_log)
            assert nodes[NEW].offsets(TOPIC) == (0, 0, 0, 0)
            nodes.publish = publish  # type: ignore[method-assign]
            nodes.publish()
            await joins(nodes)

    asyncio.run(run())


def test_a_configuration_that_is_there_before_the_topic_is_tiered_keeps_no_replica_out(tmp_path: Path) -> None:
    """The new replica's broker has heard that the topic is tiered, its leader has not and has nothing remote."""

    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            nodes.config(BROKER_RESOURCE, "", **FLAG)
            nodes.create(TOPIC, [1, 2], **{**SMALL_SEGMENTS, "remote_storage_enable": "false"})
            for number in range(7):
                assert (await nodes.produce(1, TOPIC, b"v%d" % number)).error_code == 0
            assert await delete_records(nodes, TOPIC, 3) == (0, 3)
            nodes.cut |= {(NEW, 1)}
            await nodes.reassign(TOPIC, 1, 2, NEW)
            publish, nodes.publish = nodes.publish, lambda *_: publish(NEW)  # type: ignore[method-assign]  # news is late
            nodes.config(TOPIC_RESOURCE, TOPIC, remote_storage_enable="true", local_retention_bytes="1")
            assert [nodes[node].partition(TOPIC).log.remote_enabled for node in (1, NEW)] == [False, True]
            requested: list[int] = []

            def listen(sender: int, _: int, request: Message, answer: Message) -> None:
                if sender == NEW and isinstance(request, m.ListOffsetsRequest):
                    requested.append(request.topics[0].partitions[0].timestamp)

            nodes.listen = listen
            nodes.cut.clear()
            await nodes.until("the end", lambda: nodes[NEW].offsets(TOPIC) == (3, 3, 7, 7))
            assert requested == [LATEST, EARLIEST, EARLIEST_PENDING_UPLOAD, EARLIEST_LOCAL]
            nodes.publish = publish  # type: ignore[method-assign]
            nodes.publish()
            await nodes.in_sync(TOPIC, 1, 2, NEW)
            await nodes.tiered_up_to(1, TOPIC, 5)

    play(run)


def test_a_full_disk_in_the_middle_of_a_build_drops_nothing(
    tmp_path: Path, broker_log: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True, replica_lag_time_max_ms="300") as nodes:
            await behind_the_local_log(nodes)
            with files_of_at_most(8 << 10):
                await nodes.restart(NEW)
                await waits(nodes, "free some space", broker_log)
                assert has_what_it_had(nodes)
            await joins(nodes)

    play(run)


def test_a_full_disk_keeps_what_is_there_until_a_replica_can_begin_at_the_leaders_log_start(
    tmp_path: Path, broker_log: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_lag_time_max_ms="300") as nodes:
            nodes.create(TOPIC, [1, 2, NEW])
            for number in range(2):
                await nodes.produce(1, TOPIC, b"v%d" % number)
            await nodes.stop(NEW)
            await nodes.in_sync(TOPIC, 1, 2)
            for number in range(2, 7):
                await nodes.produce(1, TOPIC, b"v%d" % number)
            assert await delete_records(nodes, TOPIC, 5) == (0, 5)
            nodes.cut = {(NEW, 1)}
            await nodes.restart(NEW)
            with files_of_at_most(0):
                nodes.cut = set()
                await waits(nodes, "free some space", broker_log)
                assert has_what_it_had(nodes)
            await nodes.in_sync(TOPIC, 1, 2, NEW)
            await nodes.until("the end", lambda: nodes[NEW].offsets(TOPIC) == (5, 5, 7, 7))

    play(run)


def test_a_full_disk_keeps_what_is_there_until_a_replica_can_be_cut_to_where_it_agrees_with_its_leader(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_lag_time_max_ms="300") as nodes:
            nodes.create(TOPIC, [NEW, 1], unclean_leader_election_enable="true")
            await nodes.produce(NEW, TOPIC, b"v0")
            await nodes.stop(1)
            await nodes.in_sync(TOPIC, NEW)
            elect(nodes, NEW)
            await nodes.produce(NEW, TOPIC, b"lost")
            alone = nodes[NEW].partition(TOPIC).log.leader_epochs.entries
            await nodes.stop(NEW)
            await nodes.restart(1)
            assert (await nodes.produce(1, TOPIC, b"v1")).base_offset == 1
            nodes.cut = {(NEW, 1)}
            await nodes.restart(NEW)
            with files_of_at_most(0):
                nodes.cut = set()
                await nodes.until(
                    "it waits",
                    lambda: any(
                        row["phase"] == "DELAYED" and "free some space" in row["evidence"]["reason"]
                        for row in reported_phases(nodes, NEW)
                    ),
                )
                assert nodes[NEW].values(TOPIC) == [(0, b"v0"), (1, b"lost")]
                assert nodes[NEW].partition(TOPIC).log.leader_epochs.entries == alone
            await nodes.in_sync(TOPIC, 1, NEW)
            assert nodes[NEW].values(TOPIC) == [(0, b"v0"), (1, b"v1")]

    play(run)


def test_a_leader_that_does_not_know_its_tiered_offset_is_waited_for(
    tmp_path: Path, broker_log: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await remote_up_to_5(nodes)
            nodes.config(BROKER_RESOURCE, str(NEW), **FLAG)
            await nodes.stop(2)
            await nodes.stop(1)
            restarting = nodes._node

            def without_metadata(node: int) -> Any:
                made = restarting(node)
                made.metadata_topic.down = True
                return made

            nodes._node = without_metadata  # type: ignore[method-assign]  # the leader comes back without metadata
            await nodes.restart(1)
            nodes._node = restarting  # type: ignore[method-assign]
            assert (await nodes.list_offset(1, TOPIC, -6, replica_id=NEW)).offset == -1
            await nodes.reassign(TOPIC, 1, NEW)
            await waits(nodes, "does not know yet up to where it is tiered", broker_log)
            assert nodes[NEW].offsets(TOPIC) == (0, 0, 0, 0)
            nodes[1].metadata_topic.down = False
            await nodes.in_sync(TOPIC, 1, NEW)
            assert nodes[NEW].offsets(TOPIC) == (0, 6, 7, 7)

    play(run)


def test_failed_attempts_are_told_now_and_then_and_another_reason_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create(TOPIC, [1, NEW])
            await nodes.in_sync(TOPIC, 1, NEW)
            node = nodes[NEW]
            partition = node.partition(TOPIC)
            follower = FollowedPartition(partition._context, partition, 1)
            before = len(reported_phases(nodes))
            reasons = ["the segment is missing"] * 15 + ["the disk is full"] * 6 + ["the segment is missing"] * 2
            for reason in reasons:
                follower.delay(reason)
            assert [(row["attempts"], row["evidence"]["reason"]) for row in reported_phases(nodes)[before:]] == [
                (1, "the segment is missing"),
                (2, "the segment is missing"),
                (3, "the segment is missing"),
                (10, "the segment is missing"),
                (16, "the disk is full"),
                (20, "the disk is full"),
                (22, "the segment is missing"),
            ]

    play(run)


def test_an_older_metadata_version_puts_the_mode_off_without_an_error(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:

            def older(_: MetadataImage) -> ControllerResult[None]:
                record = m.FeatureLevelRecord(name="metadata.version", feature_level=KAFKA_4_2_IV0)
                return ControllerResult((record,), None)

            nodes.apply(older)
            requested: list[int] = []

            def listen(sender: int, _: int, request: Message, answer: Message) -> None:
                if sender == NEW and isinstance(request, m.ListOffsetsRequest):
                    requested.append(request.topics[0].partitions[0].timestamp)

            nodes.listen = listen
            # Local from 2, so that the mode would start elsewhere: at 6.
            nodes.create(TOPIC, [1, 2], **SMALL_SEGMENTS)
            for number in range(3):
                await nodes.produce(1, TOPIC, b"v%d" % number)
            await nodes.tiered_up_to(1, TOPIC, 1)
            nodes.config(TOPIC_RESOURCE, TOPIC, local_retention_bytes="1")
            await nodes.retain(1)
            nodes.config(TOPIC_RESOURCE, TOPIC, local_retention_bytes="-2")
            for number in range(3, 7):
                await nodes.produce(1, TOPIC, b"v%d" % number)
            await nodes.tiered_up_to(1, TOPIC, 5)
            nodes.config(BROKER_RESOURCE, "", **FLAG)
            await nodes.reassign(TOPIC, 1, 2, NEW)
            await joins(nodes, start=2)
            assert -6 not in requested
            assert "DELAYED" not in nodes[NEW].events.phases(TOPIC)

    play(run)
