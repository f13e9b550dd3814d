"""Bytes that are no request: they close their own connection, are counted in `/metrics`, and nothing else happens."""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from backend.engine.apis.table import api_table
from backend.protocol import codec, frames
from backend.protocol import messages as m
from backend.protocol.errors import EncodeError
from backend.protocol.messages import Message
from backend.protocol.varint import encode_uvarint
from tests.cluster.broker_process import BrokerProcesses
from tests.engine_cluster import EngineCluster
from tests.ports import free_ports

ANSWER_WAIT_S: Final = 30.0
# Garbage per served API of a listener; the seed makes a failure repeatable.
GARBAGE_PER_API: Final = 12
SEED: Final = 4_3_1
REQUEST_BYTES_MAX: Final = 1_000_000
IDLE_MS_MAX: Final = 3000
# Memory of 16 MB of decoded numbers, once for the broker and for the controller. It is gigabytes without limits.
MEMORY_BYTES_MAX: Final = 600_000_000


@dataclass
class Site:
    """One node that is broker and controller."""

    cluster: EngineCluster
    metrics_port: int
    loop_errors: list[str]

    @property
    def ports(self) -> tuple[int, int]:
        """Of the broker's listener and of the controller's."""
        return self.cluster.layout.ports[1], self.cluster.layout.controller_port

    def metric(self, name: str) -> float:
        """A series of broker 1 as a scraper reads it."""
        text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10, verify=False).text
        match = re.search(rf'^{name}{{broker="1"}} (\S+)$', text, re.MULTILINE)
        assert match, f"{name} is not among the metrics"
        return float(match[1])

    def open_connections(self) -> int:
        return self.cluster.broker(1).services.metrics.open_connections

    def malformed(self) -> float:
        return self.metric("ebbline_malformed_frames_total")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    (metrics_port,) = free_ports(1)
    settings = {
        "ebbline.metrics.listener": f"127.0.0.1:{metrics_port}",
        "socket.request.max.bytes": str(REQUEST_BYTES_MAX),
        "connections.max.idle.ms": str(IDLE_MS_MAX),
    }
    with EngineCluster(tmp_path_factory.mktemp("malformed"), brokers=1, settings=settings) as cluster:
        errors: list[str] = []
        cluster.loop.set_exception_handler(lambda _, context: errors.append(str(context)))
        yield Site(cluster, metrics_port, errors)
        assert errors == []


class Client:
    """One connection, by bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_closed(self) -> bool:
        """Waits for the end of the connection; False when an answer came instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def ask_versions(self, correlation_id: int) -> int:
        """ApiVersions; the correlation id of the answer."""
        request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        self.send(b"".join(frames.encode_request(request, 4, correlation_id, "test")))
        return self.next_answer(m.ApiVersionsResponse, 4)

    def next_answer(self, cls: type[Message], version: int, size_min: int = 0) -> int:
        """Reads one answer of at least this size; its correlation id."""
        (size,) = struct.unpack(">i", self._read(4))
        assert size >= size_min
        return frames.decode_response(cls, version, self._read(size))[0]

    def _read(self, size: int) -> bytearray:
        received = bytearray()
        while len(received) < size:
            more = self._socket.recv(size - len(received))
            assert more, "the connection was closed"
            received += more
        return received


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, *, flexible: bool = True) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, 4) + b"test" + (b"\x00" if flexible else b"")


METADATA: Final = b"".join(frames.encode_request(m.MetadataRequest(topics=None), 12, 7, "test"))
CLOSED: Final = {
    "length -1": struct.pack(">i", -1),
    "length -2147483648": struct.pack(">i", -(1 << 31)),
    "length 2147483647": struct.pack(">i", (1 << 31) - 1),
    "length above the limit": struct.pack(">i", REQUEST_BYTES_MAX + 1),
    "length 0": struct.pack(">i", 0),
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(600),
    "unknown api key": framed(header(999, 0)),
    "negative api key": framed(header(-1, 0)),
    "unknown version": framed(header(3, 99)),
    "body cut off": framed(METADATA[4:-4]),
    "absurd array count": framed(header(3, 12) + b"\xff\xff\xff\xff\x0f" + bytes(40)),
    "negative string length": framed(header(10, 2, flexible=False) + struct.pack(">h", -5)),
    "client id that is not UTF-8": framed(struct.pack(">hhih", 3, 12, 7, 2) + b"\xff\xfe\x00\x01\x01\x01\x01\x00"),
    "client id longer than the frame": framed(struct.pack(">hhih", 3, 12, 7, 32767) + bytes(20)),
    "a varint without end": framed(header(3, 12) + b"\xff" * 40),
}


@pytest.mark.parametrize("data", CLOSED.values(), ids=CLOSED.keys())
@pytest.mark.parametrize("listener", [0, 1], ids=["broker", "controller"])
def test_a_malformed_frame_closes_its_connection_only_and_is_counted(site: Site, listener: int, data: bytes) -> None:
    before = site.malformed()
    with Client(site.ports[listener]) as good, Client(site.ports[listener]) as bad:
        assert good.ask_versions(1) == 1
        bad.send(data)
        assert bad.is_closed()
        assert good.ask_versions(2) == 2
    assert site.malformed() == before + 1


def test_a_half_frame_and_a_close_are_no_malformed_frame(site: Site) -> None:
    before, kept = site.malformed(), site.cluster.ask(site.open_connections)
    with Client(site.ports[0]) as client:
        client.send(METADATA[:-3])
    with Client(site.ports[0]) as client:
        client.send(struct.pack(">i", REQUEST_BYTES_MAX) + bytes(REQUEST_BYTES_MAX // 2))
    with Client(site.ports[0]) as good:
        assert good.ask_versions(3) == 3
        site.cluster.wait_until(
            "the half frames' connections are forgotten",
            lambda: site.open_connections() == kept + 1,
        )
    assert site.malformed() == before


def test_a_frame_that_comes_byte_by_byte_is_answered_or_ends_with_the_idle_time(site: Site) -> None:
    with Client(site.ports[0]) as patient:
        for at in range(len(METADATA)):
            patient.send(METADATA[at : at + 1])
        assert not patient.is_closed()
    with Client(site.ports[0]) as loris, Client(site.ports[0]) as good:
        loris.send(METADATA[:10])
        for at in range(10, len(METADATA) - 1):
            loris.send(METADATA[at : at + 1])
            assert good.ask_versions(at) == at
        # Bytes that complete no frame are no sign of life.
        assert loris.is_closed()
    with Client(site.ports[0]) as good:
        assert good.ask_versions(5) == 5


def garbage(chance: random.Random, listener: str) -> Iterator[bytes]:
    """For each API of a listener: whole requests with bytes changed, cut, or drawn at random."""
    for key, api in sorted(api_table().served(listener).items()):  # type: ignore[arg-type]
        cls = frames.request_class(key)
        for _ in range(GARBAGE_PER_API):
            version = chance.randint(api.min_version, api.max_version)
            head = header(key, version, flexible=version >= cls.FIRST_FLEXIBLE)
            try:
                body = bytearray(codec.encode(cls(), version)) or bytearray(2)
            except EncodeError:
                body = bytearray(20)
            match chance.randrange(3):
                case 0:
                    body = bytearray(chance.randbytes(chance.randint(0, 200)))
                case 1:
                    for _ in range(chance.randint(1, 8)):
                        body[chance.randrange(len(body))] = chance.randrange(256)
                case _:
                    del body[chance.randrange(len(body)) :]
            yield framed(head + bytes(body))
    for _ in range(50):
        yield framed(chance.randbytes(chance.randint(0, 300)))


@pytest.mark.parametrize("listener", [0, 1], ids=["broker", "controller"])
def test_garbage_for_every_api_harms_nobody_else(site: Site, listener: int) -> None:
    chance = random.Random(SEED)
    port = site.ports[listener]
    before = site.malformed()
    with Client(port) as good:
        for number, data in enumerate(garbage(chance, "broker" if listener == 0 else "controller")):
            with Client(port) as bad:
                bad.send(data)
                # Some of it happens to be a request: then it is answered, or waits.
                assert good.ask_versions(number) == number, data.hex()
    assert site.malformed() > before + 50


def array(count: int, element: bytes) -> bytes:
    return encode_uvarint(count + 1) + element * count


# Small on the wire, large in memory: empty assignments of CreatePartitions, replicas of a reassignment, empty topics of
# a Produce. Without limits each byte would take 10 to 50 in memory.
HOSTILE: Final = {
    "structs": header(37, 3) + array(1, b"\x02t" + bytes(4) + array(8_000_000, b"\x01\x00")),
    "structs below the limit": header(37, 3)
    + array(1, b"\x02t" + bytes(4) + array(99_000, b"\x01\x00") + b"\x00")
    + bytes(6),
    "numbers": header(45, 1)
    + bytes(5)
    + array(1, b"\x02t" + array(1, bytes(4) + array(4_000_000, bytes.fromhex("00003039")) + b"\x00") + b"\x00")
    + b"\x00",
    "topics": header(0, 9) + b"\x00" + bytes(6) + array(33_000_000, b"\x01\x01\x00") + b"\x00",
    "a large request without records": header(12, 4) + bytes(100_000_000),
}

# These are requests, if strange ones.
ANSWERED: Final = {"structs below the limit"}


def test_hostile_frames_take_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path, brokers=1) as nodes:
        pid = nodes.pid(1)
        before = resident_bytes_max(pid)
        with Client(nodes.layout.ports[1]) as good:
            for number, (name, body) in enumerate(HOSTILE.items()):
                with Client(nodes.layout.ports[1]) as bad:
                    bad.send(framed(body))
                    assert bad.is_closed() is (name not in ANSWERED)
                assert good.ask_versions(number) == number
            with ExitStack() as announced:
                for _ in range(300):
                    announced.enter_context(Client(nodes.layout.ports[1])).send(struct.pack(">i", 100_000_000) + b"x")
                assert good.ask_versions(99) == 99
        grown = resident_bytes_max(pid) - before
    assert grown < MEMORY_BYTES_MAX, f"{grown / 1e6:.0f} MB"


FETCHED_BYTES: Final = 5_000_000
PIPELINED_FETCHES: Final = 100
UNREAD_BYTES_MAX: Final = 150_000_000


def test_small_fetches_whose_answers_nobody_reads_take_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path, brokers=1) as nodes:
        nodes.admin.create_topics([NewTopic("large", 1, 1)])["large"].result(ANSWER_WAIT_S)
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "linger.ms": 50})
        for _ in range(FETCHED_BYTES // 100_000):
            producer.produce("large", bytes(100_000), partition=0)
        assert producer.flush(ANSWER_WAIT_S) == 0
        topic = m.FetchRequest.Topics
        request = m.FetchRequest(
            max_bytes=2 * FETCHED_BYTES,
            session_epoch=-1,
            topics=[topic(topic="large", partitions=[topic.Partitions(partition_max_bytes=2 * FETCHED_BYTES)])],
        )
        fetches = [b"".join(frames.encode_request(request, 11, number, "test")) for number in range(PIPELINED_FETCHES)]
        before = resident_bytes_max(nodes.pid(1))
        with Client(nodes.layout.ports[1]) as good, Client(nodes.layout.ports[1]) as greedy:
            greedy.send(b"".join(fetches))
            assert good.ask_versions(1) == 1
            assert resident_bytes_max(nodes.pid(1)) - before < UNREAD_BYTES_MAX
            # A client that reads after all gets every response.
            for number in range(PIPELINED_FETCHES):
                assert greedy.next_answer(m.FetchResponse, 11, FETCHED_BYTES) == number
        grown = resident_bytes_max(nodes.pid(1)) - before
    assert grown < UNREAD_BYTES_MAX, f"{grown / 1e6:.0f} MB"


def resident_bytes_max(pid: int) -> int:
    """The most memory that a process has held."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert match
    return int(match[1]) * 1024
