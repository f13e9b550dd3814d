"""Every API is asked for the most that a request may ask for: whoever else is there is answered within a few turns."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from backend.engine.apis.context import ListenerKind
from backend.engine.apis.table import api_table
from backend.interpreter import GC_THRESHOLDS
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import EncodeError
from tests.costly_requests import Costly, request, shapes
from tests.effort import SOAK, effort
from tests.engine_cluster import EngineCluster
from tests.loop_watch import LoopWatch
from tests.wire import ask, exactly

# Turns that did something, between another client's question and its answer.
TURNS_MAX: Final = 5
# Processor time of one: 20 ms of the request's own, beside what the rest of the process does. Ten times as much on the
# machine of a test that others run beside; the soak holds the answers themselves to 250 ms.
TURN_MS_MAX: Final = 200.0
ANSWER_MS_MAX: Final = effort(5_000.0, 250.0)
# A tenth of what is allowed shows in seconds what grows with the square of it.
ELEMENTS: Final = effort(30_000, 98_000)
NAMES: Final = {
    "name": "wide", "topic": "wide", "topic_name": "wide", "resource_name": "wide", "group_id": "g", "groups": "g",
    "timeout_ms": 1000, "num_partitions": 1, "replication_factor": 1, "resource_type": 2, "acks": 1,
    "generation_id_or_member_epoch": -1, "response_partition_limit": 2000, "validate_only": True, "replica_id": -1,
    "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000, "transactional_id": None,
}  # fmt: skip
# They change who the nodes are, or are asked by nodes alone with an epoch of theirs.
LEFT_OUT: Final = frozenset({62, 63, 80, 81, 82})
# Proof of another's password costs what it is to cost (PBKDF2); it has tests of its own.
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
        asked = m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        assert ask(running.layout.ports[1], asked, 7, m.CreateTopicsResponse).topics[0].error_code == 0
        replicas = running.broker(1).services.replica_manager
        running.wait_until("wide is led", lambda: all(replicas.find("wide", at) for at in range(50)))
        yield running
    gc.set_threshold(*before)
    gc.unfreeze()


def encoded(costly: Costly) -> bytes | None:
    """None where the version has no way to say it."""
    try:
        return b"".join(
            bytes(one) for one in frames.encode_request(request(costly, NAMES), costly.version, 1, "greedy")
        )
    except EncodeError:
        return None


def send(port: int, data: bytes) -> None:
    """One request, and its whole answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(data)
        (size,) = struct.unpack(">i", exactly(connection, 4))
        exactly(connection, size)


def test_whoever_asks_for_most_holds_up_nobody(cluster: EngineCluster) -> None:
    slow: list[str] = []
    for kind, costly in cases():
        data = encoded(costly)
        if data is None:
            continue
        port = cluster.layout.ports[1] if kind == "broker" else cluster.layout.controller_port
        # Some of it is answered by closing the connection, which is an answer too.
        with LoopWatch(cluster.loop, cluster.layout.ports[1]) as other, suppress(ConnectionError):
            send(port, data)
        waited = (other.turns_waited_max, other.turn_ms_max, other.answer_ms_max)
        if any(found > most for found, most in zip(waited, (TURNS_MAX, TURN_MS_MAX, ANSWER_MS_MAX), strict=True)):
            slow.append(
                f"{kind} {costly}: {waited[0]} turns, one of {waited[1]:.0f} ms, answer after {waited[2]:.0f} ms"
            )
    assert slow == []
