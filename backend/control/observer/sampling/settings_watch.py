"""The settings of brokers and topics, asked less often than offsets (`pace`), those of a new topic at once."""

from __future__ import annotations

from dataclasses import replace

from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.config_requests import TopicSettings
from backend.control.gateway.requests.metadata_requests import ClusterMetadata
from backend.control.observer.sampling.sampling_interval import settings_interval_ms
from backend.control.observer.sampling.settings_sample import (
    TOPIC_SETTINGS,
    SettingsSample,
    sample_settings,
    sample_topic_settings,
)


class SettingsWatch:
    """Keeps the newest settings, and the answers since they were last taken to be stored."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._topic_settings = TopicSettings(TOPIC_SETTINGS)
        self._read_ms: int | None = None
        self._unstored: SettingsSample | None = None
        # Ids of the topics whose settings are known, by name: one that was made again is asked again.
        self._topic_ids: dict[str, bytes] = {}
        self.newest = SettingsSample()

    def take_unstored(self) -> SettingsSample | None:
        """The settings that were read since the last call: all of them, those of new topics, or None."""
        unstored, self._unstored = self._unstored, None
        return unstored

    def refresh(self) -> None:
        """The next round asks for all settings whatever their age: one has just been changed."""
        self._read_ms = None

    def forget(self) -> None:
        """Drops all settings: they are of another cluster."""
        self.newest, self._unstored, self._topic_ids = SettingsSample(), None, {}
        self.refresh()

    def is_due(self, view: ClusterMetadata, now_ms: int) -> bool:
        """Whether it is time to ask for all of them."""
        return self._read_ms is None or now_ms - self._read_ms >= settings_interval_ms(len(view.topics))

    async def sample(self, view: ClusterMetadata, now_ms: int) -> None:
        """Asks for all of them. A topic that does not answer now has what it had."""
        self._read_ms = now_ms  # set before the request, so that a refresh() during it is not lost
        ids = {topic.topic: topic.topic_id for topic in view.topics}
        try:
            settings = await sample_settings(
                self._gateway, [b.broker_id for b in view.brokers], ids, self._topic_settings
            )
        except BaseException:
            self.refresh()
            raise
        before = self.newest.topics
        kept = {name: before[name] for name in before.keys() & ids.keys() if self._topic_ids.get(name) == ids[name]}
        self.newest = replace(settings, topics=kept | settings.topics)
        self._topic_ids = {name: ids[name] for name in self.newest.topics}
        self._unstored = replace(settings, at_ms=now_ms)

    async def sample_new(self, view: ClusterMetadata, now_ms: int) -> None:
        """Asks for those of topics that are new, or were made again, or have not answered yet."""
        new = {t.topic: t.topic_id for t in view.topics if self._topic_ids.get(t.topic) != t.topic_id}
        if not new:
            return
        settings = await sample_topic_settings(self._gateway, new, TopicSettings(TOPIC_SETTINGS))
        # Without those of a topic of such a name that is no more. Others may be reading the sample of the round before.
        kept = {name: entries for name, entries in self.newest.topics.items() if name not in new}
        self.newest = replace(self.newest, topics=kept | settings)
        self._topic_ids = {name: new.get(name) or self._topic_ids[name] for name in self.newest.topics}
        if settings:
            self._unstored = self._unstored or SettingsSample(at_ms=now_ms)
            self._unstored.topics.update(settings)
