"""The metadata log's leader answers a Fetch as a real Apache Kafka's controller does in these cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from backend.engine.raft.leader_fetch import (
    LogView,
    decide,
    has_records,
    is_diverging,
    requested_partition,
    response_of,
)
from backend.engine.raft.snapshot_files import SnapshotId
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

VIEW = LogView(leader_id=1, epoch=4, start_offset=0, end_offset=100, high_watermark=90)
EPOCH_STARTS = {1: 0, 2: 30, 4: 60}


def end_offset_for_epoch(epoch: int) -> tuple[int, int]:
    epochs = [earlier for earlier in EPOCH_STARTS if earlier <= epoch]
    if not epochs or epoch > max(EPOCH_STARTS):
        return -1, -1
    nearest = max(epochs)
    return nearest, min((start for later, start in EPOCH_STARTS.items() if later > nearest), default=VIEW.end_offset)


def fetch_partition(**fields: int) -> m.FetchRequest.Topics.Partitions:
    requested = {"current_leader_epoch": 4, "fetch_offset": 70, "last_fetched_epoch": 4} | fields
    return m.FetchRequest.Topics.Partitions(partition=0, **requested)  # type: ignore[arg-type]  # numbers by name


def request(
    topic_id: bytes = CLUSTER_METADATA_TOPIC_ID, topic: str = "", cluster_id: str | None = "c", **fields: int
) -> m.FetchRequest:
    return m.FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 500),
        cluster_id=cluster_id,
        topics=[m.FetchRequest.Topics(topic_id=topic_id, topic=topic, partitions=[fetch_partition(**fields)])],
    )


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"current_leader_epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_another_epoch_learns_the_leader(fields: dict[str, int], code: ErrorCode) -> None:
    answer = decide(fetch_partition(**fields), VIEW, end_offset_for_epoch)
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (code, -1, 0)
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 4)


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [
        (0, 0, None),
        (0, 9, None),
        (70, 4, None),
        (100, 4, None),
        (10, 1, None),
        (30, 1, None),
        (31, 1, (1, 30)),
        (40, 3, (2, 60)),
        (5000, 4, (4, 100)),
        (80, 9, (4, 100)),
        (5, 0, (0, 0)),
    ],
)
def test_a_log_that_parted_from_the_leaders_is_told_where(
    offset: int, epoch: int, diverging: tuple[int, int] | None
) -> None:
    answer = decide(fetch_partition(fetch_offset=offset, last_fetched_epoch=epoch), VIEW, end_offset_for_epoch)
    assert answer.error_code == 0
    assert answer.high_watermark == 90
    assert is_diverging(answer) == (diverging is not None)
    if diverging is not None:
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == diverging


@pytest.mark.parametrize(
    ("asking", "version", "code"),
    [
        (request(cluster_id="other"), 18, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (request(topic_id=bytes(15) + b"\x09"), 18, ErrorCode.INVALID_REQUEST),
        (request(topic="orders"), 12, ErrorCode.INVALID_REQUEST),
        (request(fetch_offset=-1), 18, ErrorCode.INVALID_REQUEST),
        (request(last_fetched_epoch=-1), 18, ErrorCode.INVALID_REQUEST),
        (request(max_wait_ms=-1), 18, ErrorCode.INVALID_REQUEST),
        (m.FetchRequest(cluster_id=None), 18, ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_for_anything_else_are_refused_as_a_whole(
    asking: m.FetchRequest, version: int, code: ErrorCode
) -> None:
    assert requested_partition(asking, version, "c") is code


def test_the_topic_goes_by_name_or_id_with_the_version() -> None:
    assert not isinstance(requested_partition(request(), 18, "c"), ErrorCode)
    assert not isinstance(requested_partition(request(cluster_id=None), 18, "c"), ErrorCode)
    assert not isinstance(requested_partition(request(topic=CLUSTER_METADATA_TOPIC), 12, "c"), ErrorCode)
    answer = decide(fetch_partition(), VIEW, end_offset_for_epoch)
    endpoint = m.FetchResponse.NodeEndpoints(node_id=1, host="h", port=1)
    assert response_of(answer, 18, endpoint).responses[0].topic_id == CLUSTER_METADATA_TOPIC_ID
    assert response_of(answer, 12, endpoint).responses[0].topic == CLUSTER_METADATA_TOPIC


# A snapshot at the log's start (60, epoch 4) and a newer one.
WITH_SNAPSHOTS = replace(VIEW, start_offset=60, earliest_snapshot=SnapshotId(60, 2), latest_snapshot=SnapshotId(80, 4))


@pytest.mark.parametrize(
    ("view", "offset", "epoch", "sent"),
    [
        (replace(WITH_SNAPSHOTS, start_offset=0), 0, 0, True),
        (replace(WITH_SNAPSHOTS, start_offset=0), 1, 1, True),
        (replace(WITH_SNAPSHOTS, start_offset=0), 40, 2, False),
        (WITH_SNAPSHOTS, 59, 2, True),
        (WITH_SNAPSHOTS, 60, 4, True),
        (WITH_SNAPSHOTS, 60, 2, False),
        (WITH_SNAPSHOTS, 70, 1, True),
        (WITH_SNAPSHOTS, 70, 4, False),
        (WITH_SNAPSHOTS, 5000, 4, False),
        (VIEW, 0, 0, False),
    ],
)
def test_a_snapshot_is_named_exactly_when_the_log_cannot_tell(
    view: LogView, offset: int, epoch: int, sent: bool
) -> None:
    answer = decide(fetch_partition(fetch_offset=offset, last_fetched_epoch=epoch), view, end_offset_for_epoch)
    assert answer.error_code == 0
    assert (answer.snapshot_id.end_offset >= 0) == sent
    if sent:
        assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == (80, 4), "always the latest"
        assert not is_diverging(answer)
        assert not has_records(answer)


def test_who_does_not_lead_says_who_does() -> None:
    answer = decide(fetch_partition(), replace(VIEW, is_leader=False, leader_id=2), end_offset_for_epoch)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == 2
