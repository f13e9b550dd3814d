"""Voters of a quorum without a leader: those that refuse connections do not run, if any other one takes them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from backend.control.observer.watches import quorum_watch
from backend.control.observer.watches.quorum_watch import VOTERS_MAX, refused_voters

# A port that was bound and never listens refuses connections.
HOST = "127.0.0.1"


@pytest.fixture
def ports() -> Iterator[tuple[int, int, int]]:
    """The first two refuse connections, the last takes them."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind((HOST, 0))
        sockets[2].listen()
        first, second, third = (each.getsockname()[1] for each in sockets)
        yield first, second, third


def test_voters_that_refuse_connections_do_not_run(ports: tuple[int, int, int]) -> None:
    listeners = {4: (HOST, ports[0]), 5: (HOST, ports[1]), 6: (HOST, ports[2])}
    assert asyncio.run(refused_voters(listeners, listeners)) == {4, 5}


def test_where_no_voter_takes_a_connection_nothing_is_known(ports: tuple[int, int, int]) -> None:
    listeners = {4: (HOST, ports[0]), 5: (HOST, ports[1]), 6: (HOST, ports[2])}
    assert asyncio.run(refused_voters((4, 5), listeners)) == frozenset(), "node 6 is no voter"
    assert asyncio.run(refused_voters((4, 5), {})) == frozenset()


def test_of_a_quorum_of_too_many_voters_some_are_tried(ports: tuple[int, int, int]) -> None:
    listeners = {0: (HOST, ports[2])} | dict.fromkeys(range(1, 1000), (HOST, ports[0]))
    assert asyncio.run(refused_voters(listeners, listeners)) == set(range(1, VOTERS_MAX))


def test_a_host_that_cannot_be_found_is_not_known_to_be_dead(
    ports: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_watch, "CONNECT_S", 0.5)
    listeners = {4: ("host.invalid", 9093), 5: (HOST, ports[0]), 6: (HOST, ports[2])}
    assert asyncio.run(refused_voters(listeners, listeners)) == {5}
