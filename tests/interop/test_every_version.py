"""Every version of every API that a listener advertises is answered in form, and Kafka's list is accounted for."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from backend.engine.apis.api_declaration import ListenerKind
from backend.engine.apis.table import api_table
from backend.protocol import codec, frames
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message
from tests.engine_cluster import CLUSTER_ID, EngineCluster
from tests.wire import exactly

FIXTURE: Final = Path("tests/fixtures/apache-kafka-4.3.1/api-versions.json")
KINDS: Final[tuple[ListenerKind, ...]] = ("broker", "controller")
CORRELATION_ID: Final = 77

_TOKENS: Final = "delegation tokens are left out of the product"
_SHARE: Final = "share groups (KIP-932) are left out of the product"
_STREAMS: Final = "streams groups (KIP-1071) are left out of the product"
_QUORUM: Final = "the voters stand in the settings, so none tells the leader of a new address"

# Keys that Kafka 4.3.1 serves and this engine does not, each with its reason.
ABSENT: Final[dict[ListenerKind, dict[int, str]]] = {
    "broker": {
        **dict.fromkeys((38, 39, 40, 41), _TOKENS),
        **dict.fromkeys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), _SHARE),
        **dict.fromkeys((88, 89), _STREAMS),
    },
    "controller": {
        **dict.fromkeys((38, 39, 40, 41), _TOKENS),
        50: "brokers describe the credentials, from the metadata that they have",
        82: _QUORUM,
        58: "brokers send requests on as they are, without an envelope",
    },
}


def _api_versions() -> Message:
    return m.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def _fetch() -> Message:
    return m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1024, cluster_id=CLUSTER_ID)


_GROUPS: Final = count()


def _join_group() -> Message:
    protocol = m.JoinGroupRequest.Protocols(name="range", metadata=b"")
    return m.JoinGroupRequest(
        # Another group: nobody waits for the member of another request to come back.
        group_id=f"every-version-{next(_GROUPS)}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _topic_partitions() -> Message:
    return m.DescribeTopicPartitionsRequest(response_partition_limit=10, cursor=None)


# Requests whose defaults are not enough to be valid.
REQUESTS: Final[dict[int, Callable[[], Message]]] = {
    0: lambda: m.ProduceRequest(acks=1, timeout_ms=1000),
    1: _fetch,
    11: _join_group,
    18: _api_versions,
    75: _topic_partitions,
}


def minimal(key: int) -> Message:
    make = REQUESTS.get(key, frames.request_class(key))
    return make()


def cases() -> Iterator[tuple[ListenerKind, int, int]]:
    table = api_table()
    for kind in KINDS:
        for api in table.served(kind).values():
            for version in range(api.min_version, api.max_version + 1):
                yield kind, api.key, version


def name_of(case: tuple[ListenerKind, int, int]) -> str:
    kind, key, version = case
    return f"{kind}-{frames.request_class(key).__name__.removesuffix('Request')}-v{version}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("versions"), brokers=1) as running:
        yield running


def port_of(cluster: EngineCluster, kind: ListenerKind) -> int:
    return cluster.layout.ports[1] if kind == "broker" else cluster.layout.controller_port


def answer(port: int, request: Message, version: int) -> bytes:
    """The frame that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        chunks = frames.encode_request(request, version, CORRELATION_ID, "test")
        connection.sendall(b"".join(bytes(chunk) for chunk in chunks))
        (size,) = struct.unpack(">i", exactly(connection, 4))
        return exactly(connection, size)


def decoded_whole(key: int, version: int, frame: bytes) -> Message:
    """The answer; AssertionError when it is for another request or bytes are left over."""
    cls = frames.response_class(key)
    flexible = version >= cls.FIRST_FLEXIBLE and key != 18
    assert struct.unpack(">i", frame[:4]) == (CORRELATION_ID,)
    message, end = codec.decode(cls, version, frame, 5 if flexible else 4)
    assert end == len(frame), f"{len(frame) - end} bytes are left over"
    return message


@pytest.mark.parametrize("case", list(cases()), ids=name_of)
def test_an_advertised_version_answers_a_minimal_request(
    cluster: EngineCluster, case: tuple[ListenerKind, int, int]
) -> None:
    kind, key, version = case
    message: Any = decoded_whole(key, version, answer(port_of(cluster, kind), minimal(key), version))
    assert getattr(message, "error_code", 0) != ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_answer_with_a_byte_too_many_is_noticed(cluster: EngineCluster) -> None:
    frame = answer(port_of(cluster, "broker"), m.MetadataRequest(topics=[]), 12)
    decoded_whole(3, 12, frame)
    with pytest.raises(AssertionError, match="1 bytes are left over"):
        decoded_whole(3, 12, frame + b"\0")


@pytest.mark.parametrize("kind", KINDS)
def test_a_listener_advertises_what_kafka_does_but_for_what_is_named_here(
    cluster: EngineCluster, kind: ListenerKind
) -> None:
    message = decoded_whole(18, 4, answer(port_of(cluster, kind), _api_versions(), 4))
    assert isinstance(message, m.ApiVersionsResponse)
    ours = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in message.api_keys}
    theirs = {key: (low, high) for key, _, low, high in json.loads(FIXTURE.read_text())[kind]["api_keys"]}
    assert {key: theirs.get(key) for key in ours} == ours
    assert theirs.keys() - ours.keys() == ABSENT[kind].keys()
