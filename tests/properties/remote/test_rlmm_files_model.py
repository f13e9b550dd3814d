"""A store of a partition's remote metadata, written and read back anywhere in its history, is as good as a replay."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine.remote.metadata.metadata_files import Stored, StoreUnusable, build_store, parse_store
from backend.engine.remote.metadata.remote_log_metadata_cache import Overlap, RemoteLogMetadataCache
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentSnapshot, SegmentUpdate, encode
from backend.protocol.varint import decode_uvarint, decode_varlong
from backend.tiering.ids import UUID_BYTES
from tests.effort import effort
from tests.properties.remote.test_rlmm_cache_model import EPOCHS, OFFSETS, PARTITION, histories

History = list[SegmentMetadata | SegmentUpdate]


def answers(cache: RemoteLogMetadataCache) -> object:
    """Everything a cache can be asked."""
    return (
        sorted(cache.segments()),
        cache.count,
        [cache.highest_offset(epoch) for epoch in range(EPOCHS)],
        # Of equal start offsets the order is that of internal numbers, which a store may change.
        [sorted(cache.segments_of(epoch)) for epoch in range(EPOCHS)],
        [cache.size_bytes(epoch) for epoch in range(EPOCHS)],
        [cache.lookup(epoch, offset) for epoch in range(EPOCHS) for offset in range(OFFSETS)],
    )


def entries(data: bytes) -> list[bytes]:
    """The segments of a store as the KIP has it, each as a value of the topic: read one by one, by nothing of ours."""
    size, at = decode_uvarint(data, 1)
    _, at = decode_varlong(data, at + size - 1 + UUID_BYTES)
    segments = []
    while at < len(data) and (size := data[at]) < 128 and data[at + 1] == 3:
        segments.append(b"\x01" + data[at + 1 : at + 1 + size])
        at += 1 + size
    return segments


def applied(cache: RemoteLogMetadataCache, events: History) -> RemoteLogMetadataCache:
    for event in events:
        cache.apply(event)
    return cache


@settings(max_examples=effort(80, 5_000, check=20), deadline=None)
@given(histories(), st.integers(0, 25), st.sampled_from(Overlap), st.integers(-1, 1 << 62))
def test_a_restart_in_the_middle_changes_no_answer(history: History, cut: int, overlap: Overlap, offset: int) -> None:
    before = applied(RemoteLogMetadataCache(PARTITION, overlap), history[:cut])
    data = build_store(Stored(before.copy(), offset), overlap)
    assert entries(data) == [encode(SegmentSnapshot(*segment[1:])) for segment in before.segments()]
    stored = parse_store(data, PARTITION, overlap)
    assert stored.offset == offset
    assert answers(stored.cache) == answers(before)
    replayed = applied(RemoteLogMetadataCache(PARTITION, overlap), history)
    assert answers(applied(stored.cache, history[cut:])) == answers(replayed)
    assert answers(applied(before, history[cut:])) == answers(replayed), "writing a store leaves the cache alone"


@settings(max_examples=effort(60, 5_000, check=15), deadline=None)
@given(histories(), st.data())
def test_a_damaged_store_is_noticed(history: History, data: st.DataObject) -> None:
    whole = build_store(Stored(applied(RemoteLogMetadataCache(PARTITION), history), 7), Overlap.KIP)
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole)
    if data.draw(st.booleans()):
        del broken[at:]
    else:
        broken[at] ^= data.draw(st.integers(1, 255))
    try:
        parse_store(bytes(broken), PARTITION, Overlap.KIP)
    except StoreUnusable:
        return
    raise AssertionError(f"byte {at} of {len(whole)} may be anything")
