"""A round between two whole ones, asked of a running cluster: offsets of what moves, the others as they were."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from backend.control.gateway.kafka_client import Gateway, parse_bootstrap
from backend.control.observer.sampling.cluster_facts import ClusterFacts
from backend.control.observer.sampling.cluster_sampler import ClusterSampler
from backend.control.observer.sampling.moving_partitions import TIERED_MOVES_FOR_MS
from tests.control.site import ControlSite

LATER_MS = 1_000 + 2 * TIERED_MOVES_FOR_MS


@pytest.fixture
def sampler(site: ControlSite) -> Iterator[ClusterSampler]:
    async def made() -> tuple[Gateway, ClusterSampler]:
        gateway = Gateway(parse_bootstrap(site.cluster.bootstrap))
        return gateway, ClusterSampler(gateway)

    gateway, sampler = ask(site, made())
    yield sampler
    ask(site, gateway.close())


def ask(site: ControlSite, work: Coroutine[Any, Any, Any]) -> Any:
    return site.cluster.call(work)


def of_topic(facts: ClusterFacts, topic: str) -> tuple[dict[int, int | None], set[int]]:
    """Log ends by partition, and the partitions that were listed."""
    own = [p for p in facts.partitions if p.view.topic == topic]
    ends = {p.view.partition: p.leader.log_end for p in own if p.leader is not None}
    return ends, {p.view.partition for p in own if p.topic_partition not in facts.earlier_ms}


def test_a_round_lists_what_has_grown_and_a_topic_that_is_new(site: ControlSite, sampler: ClusterSampler) -> None:
    site.create_topic("moves", partitions=1)
    site.create_topic("rests", partitions=1)
    whole = ask(site, sampler.round(1_000))
    assert sampler.describes_movement
    assert whole.earlier_ms == {}

    site.produce("moves", 5)
    site.create_topic("comes", partitions=2)
    facts = ask(site, sampler.round(LATER_MS, whole=False))
    assert of_topic(facts, "moves") == ({0: 5}, {0})
    assert of_topic(facts, "rests") == ({0: 0}, set())
    assert of_topic(facts, "comes") == ({0: 0, 1: 0}, {0, 1})
    assert {ms for (topic, _), ms in facts.earlier_ms.items() if topic == "rests"} == {1_000}

    assert ask(site, sampler.round(LATER_MS + 1)).earlier_ms == {}


def test_brokers_that_do_not_tell_their_sizes_in_time_make_no_round_whole(
    site: ControlSite, sampler: ClusterSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ask(site, sampler.round(1_000))
    monkeypatch.setattr("backend.control.observer.sampling.cluster_sampler.DISKS_WAIT_S", 0.0)
    facts = ask(site, sampler.round(LATER_MS, whole=False))
    assert facts.earlier_ms.keys() == {tuple(p.topic_partition) for p in facts.partitions}
    assert facts.partitions == whole.partitions
    assert sampler.describes_movement


def test_after_the_clock_was_set_back_a_round_is_whole(site: ControlSite, sampler: ClusterSampler) -> None:
    ask(site, sampler.round(LATER_MS))
    assert ask(site, sampler.round(1_000, whole=False)).earlier_ms == {}
    assert ask(site, sampler.round(2_000 + TIERED_MOVES_FOR_MS, whole=False)).earlier_ms != {}
