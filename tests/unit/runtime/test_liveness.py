"""Whether a process's event loop turns, as its supervisor asks it."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest

from backend.runtime import liveness
from backend.runtime.liveness import answer_liveness, is_alive


def test_a_loop_that_turns_answers_and_one_that_is_held_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    monkeypatch.setenv(liveness.VARIABLE, str(far.detach()))
    monkeypatch.setattr(liveness, "ANSWER_S", 0.2)
    held, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        goes_on.wait(30)

    loop = asyncio.new_event_loop()
    answer_liveness(loop)
    # Its children do not inherit it.
    assert liveness.VARIABLE not in os.environ
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert is_alive(near)
        loop.call_soon_threadsafe(hold)
        assert held.wait(30)
        assert not is_alive(near)
        assert not is_alive(near)
        goes_on.set()
        monkeypatch.setattr(liveness, "ANSWER_S", 30.0)
        assert is_alive(near)
    finally:
        goes_on.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        near.close()
    # The supervisor has gone: the process goes on without being asked.
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    loop.close()


def test_an_answer_that_came_too_late_is_none_to_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    monkeypatch.setattr(liveness, "ANSWER_S", 0.05)
    with near, far:
        far.send(b"!!")
        assert not is_alive(near)


def test_a_process_that_has_ended_does_not_live() -> None:
    near, far = socket.socketpair()
    far.close()
    with near:
        assert not is_alive(near)
        assert not is_alive(near)


@pytest.mark.parametrize("text", [None, "", "x", "-1", "99999"])
def test_nobody_is_answered_where_nobody_asks(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(liveness.VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(liveness.VARIABLE, text)
    loop = asyncio.new_event_loop()
    answer_liveness(loop)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
