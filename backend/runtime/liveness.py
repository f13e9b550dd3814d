"""Whether the event loop of a child process turns, asked by its supervisor over a pair of sockets that only they have.

A broker's ports answer nobody while an operator's `max.connections` is filled, so their silence alone does not say that
the process hangs. No other process can reach this way or fill it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Final

# Name of the variable that gives a child the number of its socket.
VARIABLE: Final = "EBBLINE_LIVENESS_FD"
# As for a broker's own port (`supervisor.children.process_health`).
ANSWER_S: Final = 1.0
# Questions that came while a loop was busy; one answer is enough for all.
_READ_BYTES: Final = 4096


def is_alive(channel: socket.socket) -> bool:
    """Whether the child at the other end answers; blocks up to a second."""
    try:
        channel.settimeout(0)
        with suppress(BlockingIOError):
            # Late answers to earlier questions, which say nothing of now.
            channel.recv(_READ_BYTES)
        channel.send(b"?")
        channel.settimeout(ANSWER_S)
        return bool(channel.recv(_READ_BYTES))
    except OSError:
        return False


def answer_liveness(loop: asyncio.AbstractEventLoop) -> None:
    """Answers the process that started this one, on `loop`, if it asks at all."""
    number = os.environ.pop(VARIABLE, None)
    if number is None or not number.isdecimal():
        return
    try:
        channel = socket.socket(fileno=int(number))
    except OSError:
        # A variable that somebody has set by hand.
        return
    channel.setblocking(False)
    loop.add_reader(channel, _reply, loop, channel)


def _reply(loop: asyncio.AbstractEventLoop, channel: socket.socket) -> None:
    with suppress(BlockingIOError):
        try:
            if channel.recv(_READ_BYTES):
                channel.send(b"!")
                return
        except ConnectionError:
            pass
        loop.remove_reader(channel)
        channel.close()
