"""A broker whose `max.connections` strangers have filled answers no new question, and is not taken for hung."""

from __future__ import annotations

import signal
import socket
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from backend.engine.config import format_properties
from backend.protocol import messages as m
from backend.startup.backend_entry import ONE_BROKER
from backend.supervisor.children.child import Child, ChildSpec, wait_until_healthy
from backend.supervisor.children.process_health import any_broker_answers
from tests.engine_cluster import layout
from tests.waiting import wait_until
from tests.wire import ask

CONNECTIONS_MAX: Final = 8
LISTENER: Final = "listener.name.plaintext.max.connections"


# The limit of all listeners, and that of the one which is asked.
@pytest.mark.parametrize("setting", ["max.connections", LISTENER])
def test_a_filled_broker_lives_and_a_stopped_one_does_not(tmp_path: Path, setting: str) -> None:
    made = layout(tmp_path, brokers=1, tiering=False, settings={setting: str(CONNECTIONS_MAX)})
    port = made.ports[1]
    for name in ("run", "logs"):
        (tmp_path / name).mkdir()
    properties = tmp_path / "broker-1.properties"
    properties.write_text(format_properties(made.properties(1)))
    spec = ChildSpec(
        name="broker-1",
        command=[sys.executable, "-m", "backend.startup.backend_entry", ONE_BROKER, str(properties)],
        environment={},
        address="here",
        stop_timeout_s=30.0,
        healthy=partial(any_broker_answers, [port]),
        reports_liveness=True,
    )
    broker = Child(spec, tmp_path / "logs")
    broker.start(time.monotonic())
    try:
        assert wait_until_healthy(broker, stopping=lambda: False)
        with ExitStack() as strangers:
            for _ in range(4 * CONNECTIONS_MAX):
                strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
            wait_until("the broker has no room for a question", lambda: not any_broker_answers([port]))
            assert broker.probe(time.monotonic())
            assert broker.process is not None
            broker.process.send_signal(signal.SIGSTOP)
            assert not broker.probe(time.monotonic())
            broker.process.send_signal(signal.SIGCONT)
            assert broker.probe(time.monotonic())
        wait_until("it answers again", lambda: any_broker_answers([port]))
        assert ask(port, m.MetadataRequest(topics=None), 12, m.MetadataResponse).brokers
    finally:
        broker.stop()
