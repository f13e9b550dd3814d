"""Requests drawn at random: valid ones with bytes changed, and well-formed ones whose fields are extreme.

The broker's memory stays as it is for every such request, it logs no error, and others are answered.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from backend.engine.apis.table import api_table
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import EncodeError
from backend.protocol.messages.schema import Field, schema
from tests.cluster.broker_process import BrokerProcesses
from tests.cluster.test_malformed_frames import resident_bytes_max
from tests.costly_requests import Costly, request, shapes
from tests.effort import effort
from tests.wire import ask, exactly

SEED: Final = 431
MUTATED: Final = effort(400, 30_000)
EXTREME: Final = effort(600, 44_000)
# The soak's machine is quiet; a busy one waits for its processors as well.
ANSWER_MS_MAX: Final = effort(5_000.0, 250.0)
# Memory that the first requests of each kind leave behind: code of each version, pools, one large frame.
GROWTH_BYTES_MAX: Final = 200_000_000
ANSWER_WAIT_S: Final = 2.0
INTEGERS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}
TEXTS: Final = (
    "",
    "wide",
    "../..",
    "\x00",
    "\x1b]0;x\x07",
    "<b>",
    "x" * 249,
    "x" * 32_000,
    "é",
    "🎈",
    "__consumer_offsets",
)
NAMES: Final[dict[str, Any]] = {"name": "wide", "topic": "wide", "topic_name": "wide", "group_id": "g"}
# It says to whom a registered node listens, with which metadata would name other addresses of the test's nodes.
LEFT_OUT: Final = frozenset({62})


def versions(chance: random.Random) -> Iterator[tuple[int, int]]:
    """A key and a version that a broker's listener serves, for ever."""
    served = [api for api in api_table().served("broker").values() if api.key not in LEFT_OUT]
    while True:
        api = chance.choice(served)
        yield api.key, chance.randint(api.min_version, api.max_version)


def whole(message: Any, version: int) -> bytes | None:
    try:
        return b"".join(bytes(chunk) for chunk in frames.encode_request(message, version, 7, "hostile"))
    except EncodeError:
        return None


def mutated(chance: random.Random) -> Iterator[bytes]:
    """Requests with a few elements, of which up to eight bytes were changed, or the end was cut off."""
    for key, version in versions(chance):
        candidates: list[Costly] = list(shapes(key, version, 10))
        costly = chance.choice(candidates) if candidates else Costly(key, version, (), False, 1)
        frame = whole(request(costly, NAMES), version)
        if frame is None:
            continue
        body = bytearray(frame[4:])
        for _ in range(chance.randint(1, 8)):
            body[chance.randrange(8, len(body)) if len(body) > 8 else 0] = chance.randrange(256)
        if chance.random() < 0.2:
            del body[chance.randrange(len(body)) :]
        yield struct.pack(">i", len(body)) + body


def extreme(chance: random.Random) -> Iterator[bytes]:
    """Well-formed requests whose numbers, texts and counts are what nobody would send."""
    for key, version in versions(chance):
        cls = frames.request_class(key)
        frame = whole(filled(chance, cls, schema(cls.NAME).fields, version), version)
        if frame is not None:
            yield frame


def filled(chance: random.Random, cls: type, fields: tuple[Field, ...], version: int) -> Any:
    made = cls()
    for field in fields:
        if version not in field.versions or chance.random() < 0.1:
            continue
        if field.is_array:
            count = chance.choice((0, 1, 2, 5, 100 if len(fields) < 6 else 3))
            setattr(made, field.name, [value(chance, cls, field, version) for _ in range(count)])
        else:
            setattr(made, field.name, value(chance, cls, field, version))
    return made


def value(chance: random.Random, cls: type, field: Field, version: int) -> Any:
    if field.is_struct:
        return filled(chance, getattr(cls, field.class_name), field.fields, version)
    if (bits := INTEGERS.get(field.type)) is not None:
        low, high = (0, 2**bits - 1) if field.type == "uint16" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        # Waits that a client asks for are bounded by the test's patience, not by ours.
        if field.name.endswith(("timeout_ms", "wait_ms")):
            return chance.choice((-1, 0, 1, 50))
        return chance.choice((low, high, -1 if low else 0, 0, 1, 2, chance.randint(low, high)))
    match field.type:
        case "string":
            return chance.choice(TEXTS)
        case "uuid":
            return chance.choice((bytes(16), b"\xff" * 16, chance.randbytes(16)))
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 1, 61, 500)))
        case "bool":
            return chance.random() < 0.5
        case _:
            return chance.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))


class Other:
    """Another client of the broker, and the longest that it waited for an answer."""

    def __init__(self, port: int) -> None:
        self._port, self._running, self.longest_ms = port, True, 0.0
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._running = False
        self._thread.join(60)
        return self.longest_ms

    def _ask(self) -> None:
        versions_request = m.ApiVersionsRequest(client_software_name="other", client_software_version="1")
        data = whole(versions_request, 3)
        assert data is not None
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
            while self._running:
                began_s = time.monotonic()
                connection.sendall(data)
                (size,) = struct.unpack(">i", exactly(connection, 4))
                exactly(connection, size)
                self.longest_ms = max(self.longest_ms, (time.monotonic() - began_s) * 1000)
                time.sleep(0.01)


def send(port: int, frame: bytes) -> None:
    """Sends one frame on a new connection; waits for the response, the connection's end, or a while."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=ANSWER_WAIT_S) as connection:
        connection.sendall(frame)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass


@pytest.mark.timeout(effort(600, 7200))
def test_hostile_requests_neither_take_memory_nor_leave_an_error(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with BrokerProcesses(tmp_path, brokers=1) as nodes:
        port = nodes.layout.ports[1]
        topic = m.CreateTopicsRequest.Topics(name="wide", num_partitions=5, replication_factor=1)
        ask(port, m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, m.CreateTopicsResponse)
        drawn = [(mutated(chance), MUTATED), (extreme(chance), EXTREME)]
        for frames_, count in drawn:
            for _ in range(count // 10):
                send(port, next(frames_))
        before = resident_bytes_max(nodes.pid(1))
        other = Other(port)
        for frames_, count in drawn:
            for _ in range(count):
                send(port, next(frames_))
        waited_ms = other.stop()
        grown = resident_bytes_max(nodes.pid(1)) - before
        log = nodes.log(1)
    assert "Traceback" not in log
    assert [line for line in log.splitlines() if " ERROR " in line or " CRITICAL " in line] == []
    assert grown < GROWTH_BYTES_MAX, f"{grown / 1e6:.0f} MB"
    assert waited_ms < ANSWER_MS_MAX
