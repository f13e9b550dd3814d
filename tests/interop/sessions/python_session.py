"""The common parts of the sessions of kafka-python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient

from tests.interop.sessions.transcript import Transcript


class PythonSession:
    """A conversation of one admin client, and of the other clients that its parts start."""

    def __init__(self, client: str, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.transcript = Transcript(client, bootstrap)
        self.ask, self.record = self.transcript.ask, self.transcript.record
        self.admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)

    def play(self, *parts: Callable[[], None]) -> Transcript:
        """One part after the other; the client is closed in the end."""
        try:
            for part in parts:
                part()
        finally:
            self.admin.close()
        return self.transcript
