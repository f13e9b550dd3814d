"""Makes sure that an internal topic exists, through the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from backend.engine.common.controller_channel import ControllerChannel
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError, error_code

if TYPE_CHECKING:
    from backend.engine.controller.metadata.metadata_cache import MetadataCache

CREATE_TOPICS_VERSION: Final = 7
TIMEOUT_MS: Final = 30_000


async def ensure_topic(
    channel: ControllerChannel,
    metadata: MetadataCache,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    timeout_ms: int = TIMEOUT_MS,
) -> int:
    """Creates the topic unless it is there; returns its partition count once this broker's metadata shows it.

    Raises KafkaError: the controller's refusal (INVALID_REPLICATION_FACTOR while too few brokers are registered), those
    of the channel, REQUEST_TIMED_OUT when the metadata stays behind.
    """
    existing = metadata.image.topic(name)
    if existing is not None:
        return len(existing.partitions)
    topic = m.CreateTopicsRequest.Topics
    request = m.CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[topic.Configs(name=key, value=value) for key, value in configs.items()],
            )
        ],
        timeout_ms=timeout_ms,
    )
    response = cast(
        m.CreateTopicsResponse, await channel.send(request, CREATE_TOPICS_VERSION, timeout_ms=timeout_ms + 1000)
    )
    result = response.topics[0]
    if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise KafkaError(error_code(result.error_code), f"Creating topic {name} was refused: {result.error_message}")
    if not await metadata.wait_for(lambda image: image.topic(name) is not None, timeout_ms):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Topic {name} did not appear in this broker's metadata")
    created = metadata.image.topic(name)
    return 0 if created is None else len(created.partitions)
