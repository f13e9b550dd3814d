"""The transcript of a session: lines of label and response, without the values that a cluster chooses freely."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException

Line = tuple[str, str]

_FREE: Final = (
    (re.compile(r"127\.0\.0\.1:\d+(,127\.0\.0\.1:\d+)*"), "HOST"),
    (re.compile(r"perf-consumer-\d+"), "perf-consumer"),
    # The broker that coordinates a group, and the length of the metadata log.
    (re.compile(r"HOST +\(\d\)"), "COORDINATOR"),
    (re.compile(r"Epoch: \d+"), "Epoch"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "TIME"),
)


class Transcript:
    """`lines` are (label, answer), in the order asked."""

    def __init__(self, client: str, bootstrap: str) -> None:
        self.client, self.bootstrap = client, bootstrap
        self.lines: list[Line] = []

    def record(self, label: str, answer: object) -> None:
        """Writes an answer down."""
        text = answer if isinstance(answer, str) else repr(answer)
        for pattern, word in _FREE:
            text = pattern.sub(word, text)
        self.lines.append((f"{self.client}: {label}", text))

    def ask(
        self, label: str, question: Callable[[], Any], shown: Callable[[Any], object] = lambda answer: answer
    ) -> Any:
        """Asks and writes the answer, or the error, down; what was answered, or None."""
        try:
            answer = question()
        except Exception as error:
            # A client's rendering of an error code is part of its response.
            self.record(label, error_text(error))
            return None
        self.record(label, shown(answer))
        return answer


def error_text(error: BaseException) -> str:
    """An error as its client shows it."""
    if isinstance(error, KafkaException):
        inner = error.args[0]
        return f"error {inner.name()}: {inner.str()}"
    return f"error {type(error).__name__}: {error}"
