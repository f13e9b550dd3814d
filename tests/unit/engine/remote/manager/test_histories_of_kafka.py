"""Metadata records of a real Kafka's awkward histories: two unclean elections, and a leader that moved twice within a
second.

What the cache answers after them is held against what Kafka's brokers answered and deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pytest

from backend.engine.log.checkpoint_files import decode_epochs
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.remote.manager.copied_offsets import find_highest_remote
from backend.engine.remote.manager.expiration_task import RetentionView, choose_expired
from backend.engine.remote.metadata.remote_log_metadata_cache import ApplyOutcome, Overlap, RemoteLogMetadataCache
from backend.engine.remote.metadata.remote_segment_index import RemoteSegmentIndex
from backend.protocol.errors import ErrorCode
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate, decode
from backend.tiering.segment_state import SegmentState
from tests.unit.engine.log.logs import FIXTURES

UNCLEAN: Final[dict[str, Any]] = json.loads((FIXTURES / "unclean-two-elections.json").read_text())
LATEST, LATEST_TIERED, EARLIEST_LOCAL = "-1", "-5", "-4"


def events(rows: Sequence[Any]) -> list[SegmentMetadata | SegmentUpdate]:
    decoded = []
    for row in sorted(rows, key=lambda row: row["offset"]):
        event = decode(bytes.fromhex(row["value"]))
        assert isinstance(event, SegmentMetadata | SegmentUpdate)
        decoded.append(event)
    return decoded


def cache_of(history: Sequence[SegmentMetadata | SegmentUpdate], overlap: Overlap) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache(history[0].topic_id_partition, overlap)
    for event in history:
        assert cache.apply(event) is ApplyOutcome.APPLIED
    return cache


def replicas(overlap: Overlap) -> Iterator[tuple[Any, LeaderEpochCache, RemoteLogMetadataCache]]:
    """Every replica at every step, with its epochs and the cache of the segments that were there by then."""
    history = events(UNCLEAN["remote_log_metadata"])
    for step in UNCLEAN["steps"]:
        # STARTED and FINISHED of each segment.
        copied = 2 * sum(name.endswith(".log") for name in step["remote_files"])
        for replica in step["replicas"].values():
            epochs = LeaderEpochCache(decode_epochs(replica["leader_epoch_checkpoint"].encode()))
            yield replica, epochs, cache_of(history[:copied], overlap)


@pytest.mark.parametrize("overlap", Overlap)
def test_after_unclean_elections_as_much_counts_as_copied_as_in_kafka(overlap: Overlap) -> None:
    seen = []
    for replica, epochs, cache in replicas(overlap):
        listed_offsets = replica["list_offsets_replica_-2"]
        ends = partial(epochs.end_offset_for, log_end_offset=listed_offsets[LATEST][2])
        offset_and_epoch = find_highest_remote(epochs.entries, cache.highest_offset, ends)
        assert offset_and_epoch.offset == listed_offsets[LATEST_TIERED][2]
        assert epochs.epoch_for_offset(offset_and_epoch.offset) == listed_offsets[LATEST_TIERED][3]
        seen.append(offset_and_epoch.offset)
    # A deposed leader's 4 counts no more once the first one is back.
    assert seen == [3, 4, 3, 6, 6, 6, 6, 6]


def test_after_unclean_elections_the_same_offsets_are_readable_as_in_kafka_and_all_of_them_the_kips_way() -> None:
    lost = set()
    for kafka, kip in zip(replicas(Overlap.KAFKA), replicas(Overlap.KIP), strict=True):
        replica, epochs, cache = kafka
        local_start = replica["list_offsets_replica_-2"][EARLIEST_LOCAL][2]
        for text, answer in replica["consumer_fetch"].items():
            offset = int(text)
            if offset >= local_start:
                continue
            epoch = epochs.epoch_for_offset(offset)
            assert epoch is not None
            if answer["error"] == ErrorCode.OFFSET_OUT_OF_RANGE:
                assert cache.lookup(epoch, offset) is None
                lost.add(offset)
            else:
                metadata = cache.lookup(epoch, offset)
                assert metadata is not None
                assert answer["epoch"] == epoch
            readable = kip[2].lookup(epoch, offset)
            assert readable is not None
            assert readable.start_offset <= offset <= readable.end_offset
            assert epoch in dict(readable.segment_leader_epochs)
    assert lost == {2, 3}


def test_records_deleted_over_dangling_and_double_copies_take_the_segments_that_kafka_took() -> None:
    lines = (FIXTURES / "metadata-records-dangling.jsonl").read_text().splitlines()
    history = events([json.loads(line) for line in lines])
    begun = next(at for at, event in enumerate(history) if event.state is SegmentState.DELETE_SEGMENT_STARTED)
    # DeleteRecords to 6; the deletion of the topic follows with the rest.
    deleted = [event.segment_id for event in history[begun:] if event.state is SegmentState.DELETE_SEGMENT_FINISHED][:5]
    cache = cache_of(history[:begun], Overlap.KAFKA)
    view = RetentionView(((2, 6),), 6, 11, 0, retention_bytes=-1, retention_ms=-1, now_ms=0)
    expired = choose_expired(view, RemoteSegmentIndex(cache.summary(), cache.segments, cache.oldest_of))
    assert expired.log_start is None
    assert {segment.segment_id for segment in expired.segments} == set(deleted)
    # Segments in the leader's history come first, then the forgotten epochs' by offset; of equal ones any.
    starts = {segment.segment_id: segment.start_offset for segment in cache.segments()}
    assert (
        [segment.start_offset for segment in expired.segments]
        == [starts[segment] for segment in deleted]
        == [4, 0, 0, 2, 2]
    )
