"""The estimated copy of a reassignment against the measured one, within 15 %: five layouts, the flag off and on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.control.estimate_layouts import LAYOUTS, OFF, ON, draft_of, filled_site, take_back
from tests.control.site import ControlSite
from tests.control.steps import done


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with filled_site(tmp_path_factory.mktemp("estimates")) as made:
        yield made


def test_bytes_are_as_estimated_in_five_layouts_with_the_flag_off_and_on(site: ControlSite) -> None:
    inputs = {"action": "add", "topics": list(LAYOUTS), "brokers": [OFF, ON], "throttle_bytes_per_s": 50_000_000}
    estimate = draft_of(site, inputs)
    rows = {(row["topic"], row["partition"], row["broker_id"]): row for row in estimate["partitions"]}
    assert {row["flag_on"] for key, row in rows.items() if key[2] == OFF} == {False}
    assert {row["flag_on"] for key, row in rows.items() if key[2] == ON} == {True}
    assert {row["topic"] for row in rows.values() if row["verdict"] == "qualifies"} >= {"bounded", "cut", "uneven"}
    moved = done(site, "reassign", inputs)
    measured = moved["progress"]["bytes"]
    assert len(rows) == len(measured) == 14
    for (topic, partition, broker), row in rows.items():
        foreseen, was = row["in_effect_bytes"], measured[f"{topic}-{partition}/{broker}"]
        assert abs(was - foreseen) <= 0.15 * foreseen, (topic, partition, broker, foreseen, was)
    assert abs(moved["progress"]["copied_bytes"] - estimate["in_effect_bytes"]) <= 0.15 * estimate["in_effect_bytes"]
    take_back(site, moved["id"])
