"""The errors of records that are refused, and the meters that count them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from backend.engine.controller.commands.topic_commands import delete_topics
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.unit.engine.replica.nodes import Nodes, play

NOW_MS = 1_700_000_000_000


def test_a_record_without_a_key_is_refused_by_a_compacted_topic_with_its_place_in_the_batch(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("states", [1, 2], cleanup_policy="compact")
            records = build_batch([RecordData(NOW_MS, b"k", b"v"), RecordData(NOW_MS, None, b"v")])
            row = await nodes.produce_raw(1, "states", records)
            assert row.error_code == ErrorCode.INVALID_RECORD
            assert [
                (record_error.batch_index, record_error.batch_index_error_message) for record_error in row.record_errors
            ] == [(1, "Compacted topic cannot accept message without key in topic partition states-0")]
            assert nodes[1].offsets("states")[3] == 0
            assert nodes[1].metrics.all_topics.nokeycompactedtopicrecords == 1

    play(run)


def test_refused_batches_are_counted_where_kafka_counts_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2], max_message_bytes="100")
            total = nodes[1].metrics.all_topics
            large = build_batch([RecordData(NOW_MS, None, bytes(200))])
            assert (await nodes.produce_raw(1, "orders", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert total.bytesrejected == nodes[1].metrics.topics["orders"].bytesrejected == len(large)

            torn = build_batch([RecordData(NOW_MS, None, b"v")])
            torn[-2] ^= 1
            assert (await nodes.produce_raw(1, "orders", torn)).error_code == ErrorCode.CORRUPT_MESSAGE
            assert total.invalidmessagecrcrecords == 1

            unnumbered = build_batch([RecordData(NOW_MS, None, b"v")], producer_id=5, producer_epoch=0)
            assert (await nodes.produce_raw(1, "orders", unnumbered)).error_code == ErrorCode.INVALID_RECORD
            assert total.invalidoffsetorsequencerecords == 1
            assert (total.bytesrejected, total.invalidmessagecrcrecords) == (len(large), 1)

    play(run)


def test_the_meters_of_a_deleted_topic_are_forgotten_and_no_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2])
            nodes.create("other", [1, 2])
            await nodes.produce(1, "orders", b"v")
            await nodes.produce(1, "other", b"v")
            assert set(nodes[1].metrics.topics) == {"orders", "other"}
            request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name="orders")])
            nodes.play.do(partial(delete_topics, request=request, config=nodes.play.config, version=6))
            nodes.publish()
            assert set(nodes[1].metrics.topics) == {"other"}
            assert nodes[1].metrics.all_topics.messagesin == 2

    play(run)
