"""ListOffsets by name on the golden log, tiered step by step as on a real Kafka; and brokers without the tier."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from backend.engine.apis.api_declaration import RequestContext
from backend.engine.log.unified_log import UnifiedLog
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.unit.engine.log.logs import FIXTURES, NOW_MS, append
from tests.unit.engine.remote.tiers import EPOCHS
from tests.unit.engine.replica.nodes import HANDLERS, SMALL_SEGMENTS, Nodes, through_codec
from tests.unit.engine.virtual_time import run_virtual

TOPIC = "orders"
# State → (offset, epoch) of -2, -4, -5, -6, and the offset of -3.
ListedOffsets = tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int], int]


def golden_log(log: UnifiedLog) -> None:
    """Eight records of epochs 0 to 3 in segments 0-2, 3-5 and 6-7."""
    for index, epoch in enumerate(EPOCHS):
        if index in (3, 6):
            log.roll()
        append(log, index, epoch=epoch)
    log.update_high_watermark(8)


def test_names_on_the_golden_log_are_kafkas_in_every_state(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, 1, tiered=True) as nodes:
            settings = {"remote_storage_enable": "true", "retention_ms": "-1", "index_interval_bytes": "1"}
            nodes.create(TOPIC, [1], **settings, remote_log_copy_disable="true")
            log = nodes[1].partition(TOPIC).log
            golden_log(log)

            async def answers() -> ListedOffsets:
                rows = {at: await nodes.list_offset(1, TOPIC, at) for at in (-2, -4, -5, -6, -3)}
                assert {row.error_code for row in rows.values()} == {0}
                assert (rows[-3].timestamp, rows[-3].leader_epoch) == (NOW_MS + 7, 3)
                assert {rows[at].timestamp for at in (-2, -4, -5, -6)} == {-1}
                named = [(row.offset, row.leader_epoch) for row in rows.values()]
                return named[0], named[1], named[2], named[3], named[4][0]

            async def delete_to(offset: int) -> None:
                topics = m.DeleteRecordsRequest.Topics
                topic = topics(name=TOPIC, partitions=[topics.Partitions(partition_index=0, offset=offset)])
                await nodes[1].ask(m.DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2)

            assert await answers() == ((0, 0), (0, 0), (-1, -1), (0, 0), 7)
            nodes.config(2, TOPIC, remote_log_copy_disable="false")
            await nodes.tiered_up_to(1, TOPIC, 5)
            assert await answers() == ((0, 0), (0, 0), (5, 2), (6, 2), 7)
            log.config = replace(log.config, local_retention_bytes=1)
            await nodes.retain()
            assert await answers() == ((0, 0), (6, 2), (5, 2), (6, 2), 7)
            await delete_to(4)
            assert await answers() == ((4, 1), (6, 2), (5, 2), (6, 2), 7)
            await delete_to(6)
            assert await answers() == ((6, 2), (6, 2), (5, -1), (6, 2), 7)
            await delete_to(7)
            assert await answers() == ((7, 3), (7, 3), (5, -1), (7, 3), 7)

    run_virtual(run())


async def session(nodes: Nodes) -> list[Any]:
    """The answers that a client of a topic without tiering gets, from the first record to deleted ones."""
    nodes.create(TOPIC, [1], segment_index_bytes="24", index_interval_bytes="1", retention_ms="-1")
    seen: list[Any] = []

    def ask(request: Message, version: int) -> Any:
        header = RequestHeader(request.API_KEY, version, 1, "test")
        context = RequestContext(header, 1, "127.0.0.1", "PLAINTEXT", "broker")
        answer: Any = HANDLERS[request.API_KEY](nodes[1].services, context, through_codec(request, version))
        # At once: there is nothing to wait for.
        if isinstance(answer, GeneratorType):
            answer = nodes[1].services.time_slicer.begin(answer)
        assert isinstance(answer, Message)
        return through_codec(answer, version)

    def list_offsets() -> None:
        topics = m.ListOffsetsRequest.Topics
        for at in (-1, -2, -3, -4, -5, -6, 0, NOW_MS + 3, NOW_MS + 99):
            part = topics.Partitions(partition_index=0, current_leader_epoch=-1, timestamp=at)
            seen.append(
                (at, ask(m.ListOffsetsRequest(replica_id=-1, topics=[topics(name=TOPIC, partitions=[part])]), 11))
            )
        fetch_topic = m.FetchRequest.Topics
        for replica in (-1, 5):
            for offset in range(-1, 10):
                request = m.FetchRequest(
                    replica_id=replica, max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1,
                    topics=[fetch_topic(topic=TOPIC, partitions=[fetch_topic.Partitions(
                        partition=0, fetch_offset=offset, partition_max_bytes=100, current_leader_epoch=-1,
                        last_fetched_epoch=-1, log_start_offset=-1)])],
                )  # fmt: skip
                answer = ask(request, 12)
                row = answer.responses[0].partitions[0]
                row.records = bytes(row.records)
                seen.append((replica, offset, answer))

    list_offsets()
    for at in range(7):
        records = build_batch([RecordData(NOW_MS + at, None, b"v%d" % at)])
        assert (await nodes.produce_raw(1, TOPIC, records)).error_code == 0
    list_offsets()
    topics = m.DeleteRecordsRequest.Topics
    requested = topics(name=TOPIC, partitions=[topics.Partitions(partition_index=0, offset=3)])
    await nodes[1].ask(m.DeleteRecordsRequest(topics=[requested], timeout_ms=5000), 2)
    await nodes.retain()
    list_offsets()
    return seen


@pytest.mark.parametrize("topic", ["solo-a", "solo-b"])
def test_a_restarted_replica_answers_as_kafkas_until_it_has_looked_at_the_tier_and_after_that(
    tmp_path: Path, topic: str
) -> None:
    """7 records, 0-5 tiered; all local (a), or from 6 on (b). Nobody has anything but the replica itself."""
    table = json.loads((FIXTURES / "list-offsets.json").read_text())["after_restart"]["sequence"][topic]
    at_once, later = (rows for _, rows in table)

    async def run() -> None:
        async with Nodes(tmp_path, 1, tiered=True) as nodes:
            settings = SMALL_SEGMENTS if topic == "solo-a" else {**SMALL_SEGMENTS, "local_retention_bytes": "1"}
            nodes.create(topic, [1], **settings)
            for at in range(7):
                assert (await nodes.produce(1, topic, b"v%d" % at)).base_offset == at
            await nodes.tiered_up_to(1, topic, 5)
            await nodes.retain(1)
            await nodes.stop(1)
            make = nodes._node

            def without_metadata(node: int) -> Any:
                made = make(node)
                made.metadata_topic.down = True
                return made

            nodes._node = without_metadata  # type: ignore[method-assign]  # what is tiered is not known for now
            await nodes.restart(1)

            async def answers() -> list[list[Any]]:
                listed_offsets = []
                for timestamp in (-1, -2, -4, -5, -6):
                    row = await nodes.list_offset(1, topic, timestamp, replica_id=-2)
                    listed_offsets.append([str(timestamp), row.error_code, row.offset, row.leader_epoch])
                return listed_offsets

            assert await answers() == at_once
            nodes[1].metadata_topic.down = False
            await nodes.tiered_up_to(1, topic, 5)
            assert await answers() == later

    run_virtual(run())


def test_without_the_tier_nothing_is_different_for_a_topic_that_does_not_use_it(tmp_path: Path) -> None:
    async def run() -> None:
        sessions = []
        for tiered in (False, True):
            async with Nodes(tmp_path / str(tiered), 1, tiered=tiered) as nodes:
                assert (nodes[1].remote is not None) == tiered
                sessions.append(await session(nodes))
                names = {path.name for path in (tmp_path / str(tiered) / "1").iterdir()}
                assert ("remote-log-index-cache" in names) == tiered
        without, beside = sessions
        assert without == beside
        errors = {
            answer.responses[0].partitions[0].error_code
            for _, _, answer in (entry for entry in without if len(entry) == 3)
        }
        assert errors == {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER}

    run_virtual(run())


@pytest.mark.parametrize("enabled", ["false", None])
def test_a_broker_without_the_tier_makes_no_part_of_it_and_refuses_tiered_topics(
    tmp_path: Path, enabled: str | None
) -> None:
    async def run() -> None:
        settings = {} if enabled is None else {"remote_log_storage_system_enable": enabled}
        async with Nodes(tmp_path, 1, tiered=False, **settings) as nodes:
            assert not nodes[1].config.remote_log_storage_system_enable
            created = nodes.play.create(TOPIC, [[1]], remote_storage_enable="true")
            assert created.error_code == ErrorCode.INVALID_CONFIG
            names = {metric.name for metric in (*nodes[1].metrics.gauges, *nodes[1].metrics.counters)}
            assert not any("remotelogmanager" in name or "remotefetchrequests" in name for name in names)
            assert "kafka_server_delayedremotefetchmetrics_expires" in names, "Kafka registers these without the tier"

    run_virtual(run())
