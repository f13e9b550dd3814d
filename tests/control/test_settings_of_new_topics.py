"""Settings of topics between two looks at all of them: the clock stands still here, so there is no second such look."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from backend.control.gateway.kafka_client import Gateway, parse_bootstrap
from backend.control.observer.sampling.cluster_sampler import ClusterSampler
from backend.control.observer.sampling.settings_sample import SettingsSample
from tests.control.site import ControlSite

TOPIC = "made-anew"


def retention_ms(sample: SettingsSample | None) -> dict[str, str | None]:
    return {} if sample is None else {name: entries["retention.ms"].value for name, entries in sample.topics.items()}


def test_a_new_topic_and_one_made_again_are_asked_at_once_and_alone(site: ControlSite) -> None:
    def ask(work: Coroutine[Any, Any, Any]) -> Any:
        return site.cluster.call(work)

    async def sampler_of() -> tuple[Gateway, ClusterSampler]:
        gateway = Gateway(parse_bootstrap(site.cluster.bootstrap))
        return gateway, ClusterSampler(gateway)

    gateway, sampler = ask(sampler_of())
    try:
        ask(sampler.round(1_000))
        assert TOPIC not in retention_ms(sampler.settings.take_unstored())

        site.create_topic(TOPIC, config={"retention.ms": "111111"})
        ask(sampler.round(1_000))
        result = sampler.settings.take_unstored()
        assert retention_ms(result) == {TOPIC: "111111"}
        assert result is not None
        assert (result.brokers, result.cluster_default, result.at_ms) == ({}, None, 1_000)

        site.admin.delete_topics([TOPIC])[TOPIC].result(30)
        site.wait_until("the topic is gone", lambda: TOPIC not in site.admin.list_topics(timeout=10).topics)
        site.create_topic(TOPIC, config={"retention.ms": "222222"})
        facts = ask(sampler.round(1_000))
        assert retention_ms(sampler.settings.take_unstored()) == {TOPIC: "222222"}
        [topic] = [topic for topic in facts.topics if topic.topic == TOPIC]
        assert topic.config["retention.ms"] == "222222"

        ask(sampler.round(1_000))
        assert sampler.settings.take_unstored() is None
    finally:
        ask(gateway.close())
