"""How long a reassignment was estimated to take, against what it took, within 30 %; for a quiet machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.control.estimate_layouts import LAYOUTS, OFF, ON, draft_of, filled_site, take_back
from tests.control.site import ControlSite
from tests.control.steps import done

MOVE_S: Final = 20.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with filled_site(tmp_path_factory.mktemp("estimates")) as made:
        yield made


def no_rates(site: ControlSite) -> bool:
    """A limit holds for the mean of 11 s, so that a faster move just before would hold up the next one."""
    managers = [site.cluster.broker(number).broker_services.replica_manager for number in (1, 2, OFF, ON)]
    quotas = [quota for manager in managers for quota in (manager.leader_quota, manager.follower_quota)]
    return not any(quota.rate(managers[0].clock.monotonic_ms()) for quota in quotas)


@pytest.mark.parametrize("broker", [OFF, ON], ids=["off", "on"])
@pytest.mark.parametrize("topic", LAYOUTS)
def test_the_time_is_as_estimated(site: ControlSite, topic: str, broker: int) -> None:
    site.wait_until("the brokers' windows forget the move before", lambda: no_rates(site))
    inputs = {"action": "add", "topics": [topic], "brokers": [broker], "throttle_bytes_per_s": 50_000_000}
    busiest_bytes = draft_of(site, inputs)["in_effect_ms"] * 50_000
    inputs["throttle_bytes_per_s"] = max(1_000, round(busiest_bytes / MOVE_S))
    moved = done(site, "reassign", inputs)
    took_ms = moved["finished_ms"] - moved["progress"]["began_ms"]
    foreseen_ms = moved["estimate"]["in_effect_ms"]
    assert abs(took_ms - foreseen_ms) <= 0.30 * foreseen_ms, (foreseen_ms, took_ms)
    take_back(site, moved["id"])
