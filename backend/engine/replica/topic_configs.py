"""The settings in force for the logs of each topic on this broker, kept until one of their sources changes."""

from __future__ import annotations

from backend.engine.config import topic_values
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, CLUSTER_DEFAULT
from backend.engine.log.log_config import LogConfig
from backend.engine.replica.applied_metadata import AppliedMetadata


class TopicConfigs:
    """A topic's settings stand over the broker's dynamic ones, those over the node's file."""

    def __init__(self, metadata: AppliedMetadata) -> None:
        self._metadata = metadata
        self._by_topic: dict[str, LogConfig] = {}
        # The settings of a topic that sets nothing itself; None: to be made.
        self._defaults: LogConfig | None = None

    def of(self, topic: str) -> LogConfig:
        """The settings in force for a topic's logs."""
        config = self._by_topic.get(topic)
        if config is None:
            own = self._metadata.image.topic_config(topic)
            config = self._by_topic[topic] = LogConfig.from_properties(own, self._broker_defaults())
        return config

    def forget(self, topic: str) -> None:
        """The topic is gone, or has other settings."""
        self._by_topic.pop(topic, None)

    def forget_all(self) -> None:
        """The broker has other settings."""
        self._by_topic.clear()
        self._defaults = None

    def _broker_defaults(self) -> LogConfig:
        if self._defaults is None:
            image = self._metadata.image
            values = topic_values(
                {},
                broker=image.config(BROKER_RESOURCE, str(self._metadata.node_id)),
                cluster=image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
                static=self._metadata.static_config.originals,
            )
            self._defaults = LogConfig.from_properties(values)
        return self._defaults
