"""Ranges of files over real sockets, plain and encrypted, and what becomes of them when their file changes."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.engine.ports import disk as disk_port
from backend.engine.ports.disk import OsDisk, OsFile
from backend.engine.ports.file_range import FileShortened, FileUnreadable, OsFileRange
from backend.engine.ports.tls import ClientTls, ServerTls
from backend.protocol.buffers import Chunk
from tests.unit.engine.ports.test_network import Recorder, run
from tests.unit.engine.ports.test_tls import CLIENT, SERVER

# More than the sockets of both ends take at once.
BYTES = 20_000_000
DATA = os.urandom(1 << 20) * (BYTES >> 20) + os.urandom(BYTES % (1 << 20))


def play(test: Callable[[Recorder, Recorder], Coroutine[Any, Any, None]], *, encrypted: bool = False) -> None:
    """Plays with both ends of one connection: (client, server)."""
    run(test, transports=(ServerTls(SERVER), ClientTls(CLIENT).transport("127.0.0.1")) if encrypted else (None, None))


def fail(*_: int) -> int:
    """Fails as a system call does on a disk that went away."""
    raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OsFile]:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(DATA)
    opened = OsDisk().open(str(path))
    yield opened
    opened.close()


def raise_error(error: OSError) -> None:
    raise AssertionError(f"the disk was said to have failed: {error}")


def framed(*chunks: Chunk) -> list[Chunk]:
    return [sum(map(len, chunks)).to_bytes(4, "big"), *chunks]


@pytest.mark.parametrize("encrypted", [False, True])
def test_ranges_arrive_between_buffers_in_order(file: OsFile, encrypted: bool) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        server.connection.send(framed(b"first"))
        server.connection.send(
            framed(b"head", file.range(BYTES, 0, raise_error), b"middle", file.range(70_000, 5, raise_error), b"tail")
        )
        server.connection.send(framed(file.range(100, BYTES - 100, raise_error), file.range(1, 0, raise_error)))
        assert server.connection.output_bytes > 0
        first, large, last = await client.have(3)
        assert (first, last) == (b"first", DATA[-100:] + DATA[:1])
        assert large == b"head" + DATA + b"middle" + DATA[5:70_005] + b"tail"
        assert server.connection.output_bytes == 0

    play(test, encrypted=encrypted)


def test_a_closed_and_removed_file_still_has_the_bytes_and_is_let_go_of_once_they_are_sent(file: OsFile) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        number = file._fd
        server.connection.send(framed(file.range(BYTES, 0, raise_error)))
        file.close()
        for path in Path("/proc/self/fd").resolve().iterdir():
            if path.name == str(number):
                os.remove(os.readlink(path))
        assert await client.have(1) == [DATA]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)

    play(test)


def test_a_connection_that_ends_lets_go_of_the_file(file: OsFile) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        number = file._fd
        client.connection.pause_reading()
        server.connection.send(framed(file.range(BYTES, 0, raise_error)))
        file.close()
        os.fstat(number)
        client.connection.close()
        await server.closed
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)

    play(test)


def test_a_file_that_is_cut_meanwhile_ends_the_connection_and_says_so(file: OsFile) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        client.connection.pause_reading()
        server.connection.send(framed(file.range(BYTES, 0, raise_error)))
        file.truncate(BYTES // 2)
        client.connection.resume_reading()
        error = await server.closed
        assert isinstance(error, FileShortened)
        assert f".log was cut at byte {BYTES // 2} with {BYTES - BYTES // 2} more to send" in str(error)
        assert await client.closed is None
        assert client.frames == []

    play(test)


def test_a_file_that_was_cut_before_it_is_encrypted_ends_the_connection(file: OsFile) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        late = file.range(BYTES, 0, raise_error)
        file.truncate(7)
        server.connection.send(framed(b"head", late))
        assert isinstance(await server.closed, FileShortened)
        await client.closed
        assert client.frames == []

    play(test, encrypted=True)


def test_other_bytes_in_the_place_of_those_that_were_cut_are_not_sent(file: OsFile) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        client.connection.pause_reading()
        server.connection.send(framed(file.range(BYTES, 0, raise_error)))
        file.truncate(BYTES // 2)
        file.append([bytes(BYTES)])
        client.connection.resume_reading()
        assert isinstance(await server.closed, FileShortened)
        await client.closed
        assert client.frames == []

    play(test)


def test_what_the_file_has_since_it_was_cut_is_sent(file: OsFile) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        client.connection.pause_reading()
        early = file.range(1000, 0, raise_error)
        file.truncate(1000)
        file.append([b"new" * 20_000])
        server.connection.send(framed(early, file.range(61_000, 0, raise_error)))
        client.connection.resume_reading()
        assert await client.have(1) == [2 * DATA[:1000] + b"new" * 20_000]

    play(test)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_disk_that_does_not_give_the_bytes_ends_the_connection_and_the_log_is_told(
    file: OsFile, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        failures: list[OSError] = []
        range = file.range(BYTES, 0, failures.append)
        monkeypatch.setattr(os, "sendfile", fail)
        monkeypatch.setattr(os, "pread", fail)
        server.connection.send(framed(b"head", range))
        server.connection.send(framed(b"next"))
        error = await server.closed
        assert isinstance(error, FileUnreadable)
        words = r"20000000 bytes at 0 of .*\.log could not be read to be sent: Input/output error"
        assert re.fullmatch(words, str(error))
        assert [failure.errno for failure in failures] == [errno.EIO]
        await client.closed
        assert client.frames == []

    play(test, encrypted=encrypted)


def test_a_peer_that_is_gone_is_not_taken_for_a_disk_that_failed(file: OsFile) -> None:
    async def test(client: Recorder, server: Recorder) -> None:
        client.connection.pause_reading()
        server.connection.send(framed(file.range(BYTES, 0, raise_error)))
        client.connection.close()
        assert isinstance(await server.closed, ConnectionError)

    play(test)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_without_sendfile_is_read(file: OsFile, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "sendfile", refuse)

    async def test(client: Recorder, server: Recorder) -> None:
        server.connection.send(framed(b"head", file.range(BYTES, 0, raise_error)))
        assert await client.have(1) == [b"head" + DATA]

    play(test)


def test_near_the_limit_of_open_files_bytes_are_read_at_once(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(file.range(50_000, 0, raise_error), OsFileRange)
    # A limit of which the next descriptor is above the share.
    share = (file._fd + 1) / resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    monkeypatch.setattr(disk_port, "RANGES_SHARE", share / 2)
    crowded = OsDisk().open(file._descriptor.path if file._descriptor is not None else "")
    assert crowded.range(50_000, 3, raise_error) == DATA[3:50_003]
    crowded.close()
