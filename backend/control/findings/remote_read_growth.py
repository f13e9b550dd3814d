"""Reads and copies by brokers' counters: errors, bytes, expired fetches from one reading to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Five readings 15 s apart: what failed a minute ago and was not tried since is over.
WINDOW_MS: Final = 75_000
# Two usual readings: a consumer that still reads has tried again meanwhile.
FAILING_MS: Final = 30_000
NAMES: Final = ("fetch_errors", "fetch_requests", "fetched_bytes", "expired_fetches", "copy_errors", "copied_bytes")


@dataclass(frozen=True, slots=True)
class ReadCounters:
    """A broker's counters since its start, and those of each topic."""

    values: Mapping[str, float | None]
    topics: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class ReadGrowth:
    """Growth of a broker's counters since the reading before, at `since_ms`, of one topic or of all (`topic` None).
    Copies are counted of all topics only.
    """

    at_ms: int
    since_ms: int
    broker_id: int
    topic: str | None
    errors: float
    requests: float
    fetched_bytes: float
    expired: float
    copy_errors: float = 0.0
    copied_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerReading:
    """The newest counters of a broker, and what it read of late, oldest first."""

    at_ms: int
    counters: ReadCounters
    growth: tuple[ReadGrowth, ...] = ()


BrokerReadings = Mapping[int, BrokerReading]
"""By broker."""


def remember_readings(
    before: BrokerReadings, counters: Mapping[int, ReadCounters], at_ms: int
) -> dict[int, BrokerReading]:
    """The memory with this reading; a broker that tells nothing now keeps what it had. The first has no growth."""
    result = dict(before)
    for broker_id, now in counters.items():
        last = before.get(broker_id)
        growth: tuple[ReadGrowth, ...] = ()
        if last is not None:
            kept = (row for row in last.growth if at_ms - WINDOW_MS <= row.at_ms <= at_ms)
            growth = (*kept, *_grown(broker_id, last, now, at_ms))
        result[broker_id] = BrokerReading(at_ms, now, growth)
    return result


def reads_fail(readings: BrokerReadings) -> bool:
    """Whether reads of the remote tier have failed or expired in one of the newest readings."""
    return any(
        growth.errors or growth.expired
        for reading in readings.values()
        for growth in reading.growth
        if growth.at_ms > reading.at_ms - FAILING_MS
    )


def _grown(broker_id: int, last: BrokerReading, now: ReadCounters, at_ms: int) -> list[ReadGrowth]:
    before, when = last.counters, (at_ms, last.at_ms)
    # Kafka registers the meter of expired fetches with the first of them: a broker with another counter had none.
    absent = 0.0 if any(before.values.get(name) is not None for name in NAMES) else None
    earlier_values = ((name, before.values.get(name)) for name in NAMES)
    of_all = (_growth(absent if earlier is None else earlier, now.values.get(name)) for name, earlier in earlier_values)
    rows = [ReadGrowth(*when, broker_id, None, *of_all)]
    for topic, values in now.topics.items():
        earlier = before.topics.get(topic, {})
        grown = (_growth(earlier.get(name, 0.0), values.get(name)) for name in NAMES)
        rows.append(ReadGrowth(*when, broker_id, topic, *grown))
    # Of a topic that nobody reads nothing is kept.
    return [row for row in rows if row.topic is None or row.errors or row.requests or row.fetched_bytes]


def _growth(before: float | None, now: float | None) -> float:
    """A counter that is lower than before was started again with its broker. A topic's begin with its first event."""
    if before is None or now is None:
        return 0.0
    return now - before if now >= before else now
