"""Five layouts of a topic, for comparing what a reassignment was estimated to cost with what it did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.control.feed import feed_ledger
from tests.control.site import TIERED, ControlSite
from tests.control.steps import done, ended
from tests.effort import SOAK, effort

OFF, ON = 3, 4
"""The brokers that replicas are added to; the flag is on for the second one."""
RECORDS: Final = effort(600, 24_000)
# Two layouts need no old segments.
COPIED_WHOLE: Final = ("untiered", "whole-local")
RECORDS_WHOLE: Final = RECORDS // effort(1, 4)
# In the long form some 100 batches, 0.4 MB a segment: a limit is kept evenly while the active one is copied.
BIG: Final = TIERED | {"segment.index.bytes": "1200", "local.retention.bytes": "900000"}
# 5 to 9 batches a segment, as the machine's speed has it (batches of one millisecond share an entry of the time index);
# local retention keeps two or three segments beyond the active one.
SMALL: Final = TIERED | {"segment.index.bytes": "64", "local.retention.bytes": "80000"}
BOUNDED: Final = BIG if SOAK else SMALL
LAYOUTS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "untiered": (1, {}),
    "whole-local": (1, BOUNDED | {"local.retention.bytes": "-2"}),
    "bounded": (1, BOUNDED),
    "cut": (1, BOUNDED),
    "uneven": (3, BOUNDED if SOAK else SMALL | {"local.retention.bytes": "25000"}),
}


@contextmanager
def filled_site(folder: Path) -> Iterator[ControlSite]:
    # A fetch of less than a batch gets one whole: a limit is kept evenly, and no part of a batch counts that is thrown
    # away and fetched again, as it would be, with Kafka too, for fetches of 5 kB.
    small = {"replica.fetch.max.bytes": "4000", "replica.fetch.response.max.bytes": "4000"} if SOAK else {}
    with ControlSite(folder, brokers=4, settings=small) as made:
        fill(made)
        yield made


def fill(site: ControlSite) -> None:
    for name, (partitions, config) in LAYOUTS.items():
        topic = NewTopic(name, partitions, replica_assignment=[[1], [2], [1]][:partitions], config=config)
        site.admin.create_topics([topic])[name].result(30)
        site.produce(name, RECORDS_WHOLE if name in COPIED_WHOLE else RECORDS, value_bytes=200)
    site.wait_until_quiet(*LAYOUTS)
    deleted = ("bounded", "cut", "uneven")
    for name in deleted:
        site.wait_until(
            f"local retention of {name}",
            lambda name=name: all(row["local_log_start_offset"] or 0 for row in site.partitions(name)),  # type: ignore[misc]  # bound now
        )
    site.wait_until_quiet(*deleted)
    cut = TopicPartition("cut", 0, RECORDS // 4)
    site.admin.delete_records([cut])[TopicPartition("cut", 0)].result(30)
    site.wait_until("it is cut", lambda: site.partitions("cut")[0]["log_start_offset"] == RECORDS // 4)
    feed_ledger(site)
    done(site, "toggle_bootstrap", {"scope": "broker", "broker_id": ON, "enable": True})


def draft_of(site: ControlSite, inputs: dict[str, Any]) -> dict[str, Any]:
    """The estimate, once the samples know every joining replica's bytes."""

    def read_estimate() -> dict[str, Any] | None:
        answer = site.operator.post("/v1/plans", json={"kind": "reassign", "inputs": inputs, "dry_run": True}).json()
        rows = answer["estimate"]["partitions"]
        return answer["estimate"] if rows and all(row["in_effect_bytes"] is not None for row in rows) else None

    return site.wait_until("all bytes are known", read_estimate) or {}


def take_back(site: ControlSite, plan_id: int) -> None:
    """Reverts a plan that was carried out."""
    back = site.operator.post(f"/v1/plans/{plan_id}/revert", json={}).json()["plan"]
    site.execute(back["id"])
    assert ended(site, back["id"])["state"] == "verified"
