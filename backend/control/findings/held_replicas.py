"""Throttles that hold a replica back: those of its topic, with the rates of the brokers that they apply to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backend.control.findings.finding_context import ThrottleSetting
from backend.store.writes.samples import PartitionSample

# Of a list of replicas a value has 8 bytes each.
VALUE_CHARS_MAX: Final = 200
EVERY_REPLICA: Final = "*"
ALL_BROKERS: Final = -1


def holding_throttles(
    throttles: Iterable[ThrottleSetting], row: PartitionSample, broker_id: int
) -> list[ThrottleSetting]:
    """Settings that slow the replica of this broker down, the rates first; none where the topic or a rate has none.

    Kafka throttles what a leader sends and what a follower fetches, each of the replicas that its topic lists.
    """
    given = list(throttles)
    rates, lists = [], []
    for side, of_broker in (("leader", row.leader), ("follower", broker_id)):
        listed = [
            t
            for t in given
            if t.topic == row.topic
            and t.name == f"{side}.replication.throttled.replicas"
            and _covers(t, row, of_broker)
        ]
        of_side = [t for t in given if t.topic is None and t.name == f"{side}.replication.throttled.rate"]
        rate = [t for t in of_side if t.broker_id == of_broker] or [t for t in of_side if t.broker_id == ALL_BROKERS]
        if listed and rate:
            rates += rate
            lists += listed
    return rates + lists


def described(throttle: ThrottleSetting) -> str:
    """`leader.replication.throttled.rate of broker 1 is 50000000`."""
    return f"{throttle.name} of {_place(throttle)} is {throttle.value[:VALUE_CHARS_MAX]}"


def _covers(throttle: ThrottleSetting, row: PartitionSample, broker_id: int) -> bool:
    replicas = [replica.strip() for replica in throttle.value.split(",")]
    return EVERY_REPLICA in replicas or f"{row.partition}:{broker_id}" in replicas


def _place(throttle: ThrottleSetting) -> str:
    if throttle.topic is not None:
        return throttle.topic
    return f"broker {throttle.broker_id}" if throttle.broker_id != ALL_BROKERS else "all brokers"
