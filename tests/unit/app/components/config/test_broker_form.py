"""The form of copy limits and pools: what differs, and what Kafka would refuse."""

from __future__ import annotations

import pytest

from app.components.config import broker_form
from app.components.config.broker_form import BrokerScope
from backend.store.queries.config import ConfigRow

LIMIT = "remote.log.manager.copy.max.bytes.per.second"
POOL = "remote.log.manager.copier.thread.pool.size"


def row(broker: str, name: str, value: str, *, read_only: bool = False) -> ConfigRow:
    return ConfigRow("broker", broker, name, value, "DEFAULT_CONFIG", False, read_only, "INT", None, 0)


def test_what_is_in_effect_is_that_of_the_broker_or_the_smallest_of_all() -> None:
    rows = [row("1", POOL, "10"), row("2", POOL, "4"), row("", POOL, "8"), row("1", LIMIT, "x"), row("1", "other", "1")]
    assert broker_form.in_effect(rows, BrokerScope(1)) == {POOL: "10"}
    assert broker_form.in_effect(rows, BrokerScope()) == {POOL: "4"}
    assert broker_form.in_effect([row("1", POOL, "10", read_only=True)], BrokerScope()) == {}


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        (POOL, "10", "Nothing differs"),
        (POOL, "5", None),
        (POOL, "20", None),
        (POOL, "4", "half to double of 10 at once, 5 to 20"),
        (POOL, "21", "half to double of 10"),
        (POOL, "-1", "whole number"),
        (POOL, "ten", "whole number"),
        (LIMIT, "90 000 000", None),
        (LIMIT, "0", "whole number"),
        (LIMIT, str(2**63), "whole number"),
    ],
)
def test_what_kafka_would_refuse_is_said_while_typing(name: str, value: str, refused: str | None) -> None:
    now = {POOL: "10", LIMIT: str(2**63 - 1)}
    said = broker_form.problem(now, broker_form.changed(now, {**now, name: value}))
    assert (said is None) if refused is None else (said is not None and refused in said)


def test_limits_are_written_as_people_read_them() -> None:
    assert broker_form.lines({LIMIT: "90000000", POOL: "12"}) == [f"{LIMIT} = 90000000 (90.0 MB/s)", f"{POOL} = 12"]
    assert broker_form.lines({LIMIT: str(2**63 - 1)})[0].endswith("(no limit)")
    assert BrokerScope(2).inputs == {"scope": "broker", "broker_id": 2}
