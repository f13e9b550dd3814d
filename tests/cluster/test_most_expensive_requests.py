"""Every API is asked for the most that a request may ask for: other clients are answered within a few turns.

What comes back has a bound as well, and so has the memory that making it takes.
"""

from __future__ import annotations

import gc
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from backend.engine.apis.api_declaration import ListenerKind
from backend.engine.apis.support.response_budget import RESPONSE_BYTES_MAX
from backend.engine.apis.table import api_table
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import EncodeError, ErrorCode
from backend.runtime.gc_tuning import GC_THRESHOLDS
from tests.cluster.test_malformed_frames import resident_bytes_max
from tests.costly_requests import Costly, request, shapes
from tests.effort import SOAK, effort
from tests.engine_cluster import EngineCluster
from tests.loop_watch import LoopWatch
from tests.waiting import wait_until
from tests.wire import ask, exactly

# Turns that did something, between another client's question and its answer.
TURNS_MAX: Final = 5
# Processor time of one: 20 ms of the request's own, beside what the rest of the process does. Ten times as much on the
# machine of a test that others run beside; the soak holds the answers themselves to 250 ms.
TURN_MS_MAX: Final = 200.0
ANSWER_MS_MAX: Final = effort(5_000.0, 250.0)
# A tenth of what is allowed shows in seconds what grows with the square of it.
ELEMENTS: Final = effort(10_000, 98_000)
# Of the process, which here is that of the clients too: their request as objects, its frame, the answer as objects and
# its frame twice (joined, and in the client's socket buffers) are 100,000 elements of some 2 kB each and 100 MB.
GROWTH_BYTES_MAX: Final = effort(400_000_000, 700_000_000)
# offset.metadata.max.bytes
METADATA: Final = "x" * 4096
GROUP_SETTINGS_OF_ANY_NAME: Final = 32
NAMES: Final = {
    "name": "wide", "topic": "wide", "topic_name": "wide", "resource_name": "wide", "group_id": "g", "groups": "g",
    "timeout_ms": 1000, "num_partitions": 1, "replication_factor": 1, "resource_type": 2, "acks": 1,
    "generation_id_or_member_epoch": -1, "response_partition_limit": 2000, "validate_only": True, "replica_id": -1,
    "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000, "transactional_id": None,
}  # fmt: skip
# They change who the nodes are, or are asked by nodes alone with an epoch of theirs.
LEFT_OUT: Final = frozenset({62, 63, 80, 81, 82})
# Proof of another's password is expensive on purpose (PBKDF2); other tests are for it.
SCRAM: Final = 51


def cases() -> Iterator[tuple[ListenerKind, Costly]]:
    table = api_table()
    kinds: tuple[ListenerKind, ...] = ("broker", "controller")
    for kind in kinds:
        for api in table.served(kind).values():
            if api.key in LEFT_OUT or api.key == SCRAM:
                continue
            for version in range(api.min_version, api.max_version + 1) if SOAK else (api.max_version,):
                yield from ((kind, costly) for costly in shapes(api.key, version, ELEMENTS))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    # As in the processes that run brokers.
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    with EngineCluster(tmp_path_factory.mktemp("most"), brokers=1) as running:
        topic = m.CreateTopicsRequest.Topics(name="wide", num_partitions=50, replication_factor=1)
        create_request = m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        assert ask(running.layout.ports[1], create_request, 7, m.CreateTopicsResponse).topics[0].error_code == 0
        replicas = running.broker(1).broker_services.replica_manager
        running.wait_until("wide is led", lambda: all(replicas.find("wide", at) for at in range(50)))
        yield running
    gc.set_threshold(*before)
    gc.unfreeze()


def commit_largest(port: int) -> None:
    """An offset with as much text as one may have: naming its partition again brings that much more."""
    topics = m.OffsetCommitRequest.Topics
    row = topics.Partitions(partition_index=0, committed_offset=0, committed_metadata=METADATA)
    commit_request = m.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, topics=[topics(name="wide", partitions=[row])]
    )

    def committed() -> bool:
        # The first one has the topic of offsets made.
        key = m.FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
        ask(port, key, 4, m.FindCoordinatorResponse)
        answer = ask(port, commit_request, 8, m.OffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code == 0

    wait_until("an offset is committed", committed)


def encoded(costly: Costly, **names: Any) -> bytes | None:
    """None where the version has no way to say it."""
    try:
        return b"".join(
            bytes(chunk) for chunk in frames.encode_request(request(costly, NAMES | names), costly.version, 1, "greedy")
        )
    except EncodeError:
        return None


def send(port: int, data: bytes) -> int:
    """One request; the size of its answer, which is read and not kept."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(data)
        (size,) = struct.unpack(">i", exactly(connection, 4))
        left = size
        while left:
            read = len(connection.recv(min(left, 1 << 20)))
            if not read:
                raise ConnectionError("the broker closed the connection")
            left -= read
        return int(size)


def asked_for_most() -> Iterator[tuple[ListenerKind, Costly, bytes]]:
    for kind, costly in cases():
        if (data := encoded(costly)) is not None:
            yield kind, costly, data
        if costly.key == m.DescribeConfigsRequest.API_KEY and costly.path == ("resources",):
            # A group need not exist to have settings.
            data = encoded(costly, resource_type=GROUP_SETTINGS_OF_ANY_NAME, include_documentation=True)
            assert data is not None
            yield kind, costly, data


def test_whoever_asks_for_most_holds_up_nobody_and_is_told_no_more_than_clients_read(cluster: EngineCluster) -> None:
    slow: list[str] = []
    large: dict[str, int] = {}
    before = resident_bytes_max(os.getpid())
    for kind, costly, data in asked_for_most():
        port = cluster.layout.ports[1] if kind == "broker" else cluster.layout.controller_port
        if costly.key == m.OffsetFetchRequest.API_KEY:
            commit_largest(port)
        # Some of it is answered by closing the connection, which is an answer too.
        with LoopWatch(cluster.loop, cluster.layout.ports[1]) as other, suppress(ConnectionError):
            if (size := send(port, data)) > RESPONSE_BYTES_MAX:
                large[f"{kind} {costly}"] = size
        waited = (other.turns_waited_max, other.turn_ms_max, other.answer_ms_max)
        if any(measured > most for measured, most in zip(waited, (TURNS_MAX, TURN_MS_MAX, ANSWER_MS_MAX), strict=True)):
            slow.append(
                f"{kind} {costly}: {waited[0]} turns, one of {waited[1]:.0f} ms, answer after {waited[2]:.0f} ms"
            )
    grown = resident_bytes_max(os.getpid()) - before
    assert slow == []
    assert large == {}
    assert grown < GROWTH_BYTES_MAX, f"{grown / 1e6:.0f} MB"


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
def test_an_answer_that_nobody_could_read_is_an_error_that_clients_know(cluster: EngineCluster, version: int) -> None:
    port, times = cluster.layout.ports[1], RESPONSE_BYTES_MAX // len(METADATA) + 1
    commit_largest(port)
    topic_id = cluster.ask(lambda: cluster.broker(1).services.metadata.image.topic_ids["wide"])
    topics = m.OffsetFetchRequest.Topics(name="wide", partition_indexes=[0] * times)
    grouped = m.OffsetFetchRequest.Groups.Topics(name="wide", topic_id=topic_id, partition_indexes=[0] * times)
    fetch_request = m.OffsetFetchRequest(
        group_id="g", topics=[topics], groups=[m.OffsetFetchRequest.Groups(group_id="g", topics=[grouped])]
    )
    answer = ask(port, fetch_request, version, m.OffsetFetchResponse)
    codes = {
        *(group.error_code for group in answer.groups),
        *(row.error_code for topic in answer.topics for row in topic.partitions),
        answer.error_code,
    }
    assert ErrorCode.INVALID_REQUEST in codes
    assert codes <= {ErrorCode.INVALID_REQUEST, ErrorCode.NONE}
    # As many as a client reads are answered, also of one partition.
    for part in (topics, grouped):
        part.partition_indexes = part.partition_indexes[:1000]
    answer = ask(port, fetch_request, version, m.OffsetFetchResponse)
    rows = [row for topic in answer.topics for row in topic.partitions]
    rows += [row for group in answer.groups for topic in group.topics for row in topic.partitions]  # type: ignore[misc]
    assert [len(row.metadata or "") for row in rows] == [len(METADATA)] * 1000


def test_a_topic_is_told_once_under_whatever_names_its_id_is_asked_for(cluster: EngineCluster) -> None:
    """As Apache Kafka, which makes a set of the ids."""
    topic_id = cluster.ask(lambda: cluster.broker(1).services.metadata.image.topic_ids["wide"])
    topics = [m.MetadataRequest.Topics(topic_id=topic_id, name=f"name-{at}") for at in range(10_000)]
    answer = ask(cluster.layout.ports[1], m.MetadataRequest(topics=topics), 12, m.MetadataResponse)
    assert [topic.name for topic in answer.topics] == ["wide"]
