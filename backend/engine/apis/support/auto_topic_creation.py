"""Missing topics that clients ask for (auto.create.topics.enable; Kafka's AutoTopicCreationManager)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from backend.engine.apis.support.forwarding import FORWARD_TIMEOUT_MS
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.ports import tasks
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError, error_for

CREATE_TOPICS_VERSION: Final = 7
# Topics of one broker whose creation is under way; a client that asks for more asks again.
IN_CREATION_MAX: Final = 1000
# A topic that was refused is not tried again at every question of a client.
REFUSED_PAUSE_MS: Final = 1000

_FACTORS: Final = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}
_Topic = m.CreateTopicsRequest.Topics
_log = logging.getLogger(__name__)


class AutoTopicCreationServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    metadata: MetadataCache
    controller_channel: ControllerChannel


def create_in_background(services: AutoTopicCreationServices, names: Sequence[str]) -> None:
    """Sends the controller a request for those that are not under way already."""
    under_way = services.metadata.topics_in_creation
    fresh = [name for name in names if name not in under_way][: IN_CREATION_MAX - len(under_way)]
    if fresh:
        under_way.update(fresh)
        tasks.spawn(_create(services, fresh), name=f"automatic creation of {', '.join(fresh[:3])}")


async def _create(services: AutoTopicCreationServices, names: list[str]) -> None:
    refused = False
    request = m.CreateTopicsRequest(
        topics=[topic_request(name, services.config) for name in names], timeout_ms=FORWARD_TIMEOUT_MS
    )
    try:
        response = await services.controller_channel.send(request, CREATE_TOPICS_VERSION, timeout_ms=FORWARD_TIMEOUT_MS)
        for topic in response.topics if isinstance(response, m.CreateTopicsResponse) else ():
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                refused = True
                _log.warning("Broker %d could not create topic %s automatically: %s%s", services.node_id, topic.name,
                             error_for(topic.error_code, topic.error_message), _way_out(topic))  # fmt: skip
    except KafkaError as error:
        refused = True
        _log.warning("Broker %d could not create topics %s automatically: %s", services.node_id, names, error)
    finally:
        if refused:
            await tasks.sleep_ms(REFUSED_PAUSE_MS)
        services.metadata.topics_in_creation.difference_update(names)


def _way_out(refused: m.CreateTopicsResponse.Topics) -> str:
    """The way out where an internal topic asks for more replicas than there are brokers."""
    setting = _FACTORS.get(refused.name)
    if setting is None or refused.error_code != ErrorCode.INVALID_REPLICATION_FACTOR:
        return ""
    return f" Start the other brokers, or set {setting} to their number; it is tried again"


def topic_request(name: str, config: BrokerConfig) -> _Topic:
    """The request for a topic that nobody described; internal topics have their own settings."""
    match name:
        case "__consumer_offsets":
            return _Topic(
                name=name,
                num_partitions=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                configs=_configs(
                    {
                        "compression.type": "producer",
                        "cleanup.policy": "compact",
                        "segment.bytes": str(config.offsets_topic_segment_bytes),
                    }
                ),
            )
        case "__transaction_state":
            return _Topic(
                name=name,
                num_partitions=config.transaction_state_log_num_partitions,
                replication_factor=config.transaction_state_log_replication_factor,
                configs=_configs(
                    {
                        "compression.type": "uncompressed",
                        "cleanup.policy": "compact",
                        "min.insync.replicas": str(config.transaction_state_log_min_isr),
                        "segment.bytes": str(config.transaction_state_log_segment_bytes),
                        "unclean.leader.election.enable": "false",
                    }
                ),
            )
    return _Topic(name=name, num_partitions=config.num_partitions, replication_factor=config.default_replication_factor)


def _configs(values: dict[str, str]) -> list[_Topic.Configs]:
    return [_Topic.Configs(name=name, value=value) for name, value in values.items()]
