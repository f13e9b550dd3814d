"""Errors between the control plane and a broker. Kafka's own error codes travel as `KafkaError`."""

from __future__ import annotations

from backend.runtime.redact import printable


class GatewayError(Exception):
    """A question to the cluster has no answer. The message is one sentence for people.

    Words of a broker in it may be anything; what a terminal would obey is taken out.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))


class BrokerUnavailable(GatewayError):
    """The broker cannot be reached, or closed the connection. Another broker, or the same one later, may answer."""


class AnswerOverdue(BrokerUnavailable):
    """The broker took the request and did not answer in time. Whether it acted on it is not known."""


class NotAuthenticated(BrokerUnavailable):
    """The broker does not take our credentials, or we not its certificate."""


class UnsupportedByBroker(GatewayError):
    """The broker does not have the API, or none of its versions can carry the question."""


class ProtocolViolation(BrokerUnavailable):
    """The peer answered something that is not the Kafka protocol; the connection is closed."""


class ClusterUnavailable(BrokerUnavailable):
    """No broker of the cluster answers."""
