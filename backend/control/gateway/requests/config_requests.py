"""Effective settings of brokers and topics with their synonyms, and changes to them (KIP-226, KIP-339).

A request about one broker must go to that very broker: any other answers it with an error. The cluster-wide default of
brokers (resource name "") and topics may go to any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import REQUEST_TIMEOUT_S, Gateway, until_settled
from backend.control.gateway.last_response import LastResponse
from backend.protocol import messages as m
from backend.protocol.config_enums import AlterConfigOp, ConfigSource, ConfigType
from backend.protocol.errors import KafkaError, error_for

TOPIC: Final = 2
BROKER: Final = 4
CLUSTER_DEFAULT: Final = ""
# 500 topics x 30 settings with synonyms: about 1 MB an answer.
TOPICS_PER_REQUEST: Final = 500


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One level a value could come from, as the client reads it; the engine's own is in `config.setting_definition`."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting in effect."""

    name: str
    value: str | None
    source: ConfigSource
    config_type: ConfigType
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]

    def at(self, source: ConfigSource) -> str | None:
        """The value that one level gives; None when it is not set there."""
        return next((synonym.value for synonym in self.synonyms if synonym.source is source), None)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One entry of an IncrementalAlterConfigs request."""

    name: str
    op: AlterConfigOp
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic by name, a broker by id, or the brokers' cluster-wide default (BROKER, "")."""

    type: int
    name: str

    @property
    def node_id(self) -> int | None:
        """The one broker that may be asked; None when any may."""
        return int(self.name) if self.type == BROKER and self.name != CLUSTER_DEFAULT else None


Entries = dict[str, ConfigEntry]


async def describe_broker(
    gateway: Gateway, node_id: int, *, names: Sequence[str] | None = None, lane: Lane = Lane.SAMPLE
) -> Entries:
    """Settings of one broker as it has them in effect, by name. Raises GatewayError or KafkaError."""
    resource = ConfigResource(BROKER, str(node_id))
    request = _describe_request([resource], names)
    response, _ = await gateway.ask_node(node_id, request, m.DescribeConfigsResponse, at_least=1, lane=lane)
    return _entries_of(response, resource)


async def describe_cluster_default(gateway: Gateway, *, lane: Lane = Lane.SAMPLE) -> Entries:
    """Settings given to all brokers dynamically. Raises GatewayError or KafkaError."""
    resource = ConfigResource(BROKER, CLUSTER_DEFAULT)
    response = await gateway.ask_any(
        _describe_request([resource], None), m.DescribeConfigsResponse, at_least=1, lane=lane
    )
    return _entries_of(response, resource)


class TopicSettings:
    """A question for the settings of topics; while it is answered as before, `ask` gives the same entries."""

    def __init__(self, names: Sequence[str] | None = None) -> None:
        """`names`: of these settings only."""
        self._names = names
        self._last: dict[int, LastResponse[m.DescribeConfigsResponse, dict[str, Entries]]] = {}

    async def ask(self, gateway: Gateway, topics: Sequence[str], *, lane: Lane = Lane.SAMPLE) -> dict[str, Entries]:
        """Settings by topic; a topic that is gone by now is left out. Raises GatewayError."""
        result: dict[str, Entries] = {}
        begins = range(0, len(topics), TOPICS_PER_REQUEST)
        self._last = {begin: self._last.get(begin) or LastResponse() for begin in begins}
        for begin in begins:
            resources = [ConfigResource(TOPIC, topic) for topic in topics[begin : begin + TOPICS_PER_REQUEST]]
            request, last = _describe_request(resources, self._names), self._last[begin]
            response = await gateway.ask_any(request, m.DescribeConfigsResponse, at_least=1, lane=lane, last=last)
            result |= last.made(response, _by_topic)
        return result


async def describe_topics(
    gateway: Gateway, topics: Sequence[str], *, names: Sequence[str] | None = None, lane: Lane = Lane.SAMPLE
) -> dict[str, Entries]:
    """Settings by topic; a topic that is gone by now is left out. Raises GatewayError."""
    return await TopicSettings(names).ask(gateway, topics, lane=lane)


def _by_topic(response: m.DescribeConfigsResponse) -> dict[str, Entries]:
    return {result.resource_name: _entries(result) for result in response.results if not result.error_code}


def _describe_request(resources: Sequence[ConfigResource], names: Sequence[str] | None) -> m.DescribeConfigsRequest:
    keys = None if names is None else list(names)
    return m.DescribeConfigsRequest(
        include_synonyms=True,
        include_documentation=False,
        resources=[
            m.DescribeConfigsRequest.Resources(resource_type=r.type, resource_name=r.name, configuration_keys=keys)
            for r in resources
        ],
    )


def _entries_of(response: m.DescribeConfigsResponse, resource: ConfigResource) -> Entries:
    for result in response.results:
        if result.resource_name == resource.name:
            if result.error_code:
                raise error_for(result.error_code, result.error_message)
            return _entries(result)
    return {}


def _entries(result: m.DescribeConfigsResponse.Results) -> Entries:
    return {
        c.name: ConfigEntry(
            name=c.name,
            value=c.value,
            source=_source(c.config_source),
            config_type=ConfigType(c.config_type) if 0 <= c.config_type <= 9 else ConfigType.UNKNOWN,
            read_only=c.read_only,
            sensitive=c.is_sensitive,
            synonyms=tuple(ConfigSynonym(s.name, s.value, _source(s.source)) for s in c.synonyms),
        )
        for c in result.configs
    }


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if 0 <= number <= 8 else ConfigSource.UNKNOWN


async def alter_configs(
    gateway: Gateway,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool = False,
    timeout_s: float = REQUEST_TIMEOUT_S,
    lane: Lane = Lane.ACT,
) -> None:
    """Applies the changes to one resource, all or none. Returns when the controller has accepted them, not earlier.

    Raises KafkaError when Kafka refuses; GatewayError when the broker does not answer: whether the change was made is
    then not known.
    """
    change_type = m.IncrementalAlterConfigsRequest.Resources
    request = m.IncrementalAlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            change_type(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[change_type.Configs(name=c.name, config_operation=int(c.op), value=c.value) for c in changes],
            )
        ],
    )

    async def once() -> None:
        node_id = resource.node_id
        if node_id is None:
            response = await gateway.ask_any(request, m.IncrementalAlterConfigsResponse, timeout_s=timeout_s, lane=lane)
        else:
            response, _ = await gateway.ask_node(
                node_id, request, m.IncrementalAlterConfigsResponse, timeout_s=timeout_s, lane=lane
            )
        for result in response.responses:
            if result.error_code:
                raise error_for(result.error_code, result.error_message)

    await until_settled(once, timeout_s=timeout_s)


__all__ = [
    "BROKER",
    "CLUSTER_DEFAULT",
    "TOPIC",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSynonym",
    "Entries",
    "KafkaError",
    "TopicSettings",
    "alter_configs",
    "describe_broker",
    "describe_cluster_default",
    "describe_topics",
]
