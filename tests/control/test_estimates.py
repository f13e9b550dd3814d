"""What a reassignment was estimated to copy, and to take, against what it did: five layouts, the flag off and on.

Bytes are compared always, within 15 %; times within 30 %, in the long form, where nothing else runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.control.feed import feed_ledger
from tests.control.site import TIERED, ControlSite
from tests.control.test_plans import done, ended
from tests.effort import SOAK, effort

OFF, ON = 3, 4
"""The brokers that replicas are added to; the flag is on for the second one."""
RECORDS: Final = effort(600, 4_000)
MOVE_S: Final = 20.0
# What is neither uploaded nor deletable yet is what a bootstrapped replica copies; in the long form 100 batches.
BIG_SEGMENTS: Final = TIERED | {"segment.index.bytes": "1200"}
# 5 to 9 batches a segment, as the machine's speed has it (batches of one millisecond share an entry of the time index);
# local retention keeps two or three segments beyond the active one.
SMALL: Final = TIERED | {"segment.index.bytes": "64", "local.retention.bytes": "80000"}
BOUNDED: Final = BIG_SEGMENTS if SOAK else SMALL
LAYOUTS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "untiered": (1, {}),
    "whole-local": (1, BOUNDED | {"local.retention.bytes": "-2"}),
    "bounded": (1, BOUNDED),
    "cut": (1, BOUNDED),
    "uneven": (3, BOUNDED if SOAK else SMALL | {"local.retention.bytes": "25000"}),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    # Small fetches, so that a limit is kept evenly.
    small = {"replica.fetch.max.bytes": "20000", "replica.fetch.response.max.bytes": "20000"} if SOAK else {}
    with ControlSite(tmp_path_factory.mktemp("estimates"), brokers=4, settings=small) as made:
        fill(made)
        yield made


def fill(site: ControlSite) -> None:
    for name, (partitions, config) in LAYOUTS.items():
        wanted = NewTopic(name, partitions, replica_assignment=[[1], [2], [1]][:partitions], config=config)
        site.admin.create_topics([wanted])[name].result(30)
        site.produce(name, RECORDS, value_bytes=200)
    for name in LAYOUTS:
        site.wait_until_quiet(name)
    for name in ("bounded", "cut", "uneven"):
        site.wait_until(
            f"local retention of {name}",
            lambda name=name: all(row["local_log_start_offset"] or 0 for row in site.partitions(name)),  # type: ignore[misc]  # bound now
        )
        site.wait_until_quiet(name)
    cut = TopicPartition("cut", 0, RECORDS // 4)
    site.admin.delete_records([cut])[TopicPartition("cut", 0)].result(30)
    site.wait_until("it is cut", lambda: site.partitions("cut")[0]["log_start_offset"] == RECORDS // 4)
    feed_ledger(site)
    done(site, "toggle_bootstrap", {"scope": "broker", "broker_id": ON, "enable": True})


def draft_of(site: ControlSite, inputs: dict[str, Any]) -> dict[str, Any]:
    """The estimate, once the samples know every joining replica's bytes."""

    def look() -> dict[str, Any] | None:
        answer = site.operator.post("/v1/plans", json={"kind": "reassign", "inputs": inputs, "dry_run": True}).json()
        rows = answer["estimate"]["partitions"]
        return answer["estimate"] if rows and all(row["in_effect_bytes"] is not None for row in rows) else None

    return site.wait_until("all bytes are known", look) or {}


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
    back = site.operator.post(f"/v1/plans/{moved['id']}/revert", json={}).json()["plan"]
    site.execute(back["id"])
    assert ended(site, back["id"])["state"] == "verified"


def the_time_is_as_estimated(site: ControlSite, topic: str, broker: int) -> None:
    inputs = {"action": "add", "topics": [topic], "brokers": [broker], "throttle_bytes_per_s": 50_000_000}
    busiest = draft_of(site, inputs)["in_effect_ms"] * 50_000
    inputs["throttle_bytes_per_s"] = max(1_000, round(busiest / MOVE_S))
    moved = done(site, "reassign", inputs)
    took_ms = moved["finished_ms"] - moved["progress"]["began_ms"]
    foreseen_ms = moved["estimate"]["in_effect_ms"]
    assert abs(took_ms - foreseen_ms) <= 0.30 * foreseen_ms, (foreseen_ms, took_ms)
    back = site.operator.post(f"/v1/plans/{moved['id']}/revert", json={}).json()["plan"]
    site.execute(back["id"])
    assert ended(site, back["id"])["state"] == "verified"


if SOAK:  # a time means something on a quiet machine only

    @pytest.mark.parametrize("broker", [OFF, ON], ids=["off", "on"])
    @pytest.mark.parametrize("topic", LAYOUTS)
    def test_the_time_is_as_estimated(site: ControlSite, topic: str, broker: int) -> None:
        the_time_is_as_estimated(site, topic, broker)
