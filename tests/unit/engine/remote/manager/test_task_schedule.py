"""When a task of the remote log manager runs again."""

from __future__ import annotations

import pytest

from backend.engine.config import BrokerConfig
from backend.engine.ports.random import SystemRandom
from backend.engine.remote.manager.task_loop import CROWDED_INTERVAL_MS_MAX, MS_PER_TASK, delay_ms
from backend.startup.engine_profile import EMBEDDED_SETTINGS

PREFIX = "remote.log.manager.task"


def delays_ms(settings: dict[str, str], failures: int) -> list[float]:
    config = BrokerConfig.parse({f"{PREFIX}.{name}": value for name, value in settings.items()})
    return [delay_ms(count, config, SystemRandom(1)) for count in range(failures + 1)]


def test_failures_in_a_row_double_the_wait_from_the_back_off_to_its_limit() -> None:
    result = delays_ms({"interval.ms": "30000", "retry.jitter": "0"}, 8)
    assert result == [30_000, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]


def test_the_interval_does_not_shorten_the_back_off() -> None:
    result = delays_ms({"interval.ms": "1000", "retry.backoff.max.ms": "3000", "retry.jitter": "0"}, 5)
    assert result == [1000, 500, 1000, 2000, 3000, 3000]


@pytest.mark.parametrize("seed", range(20))
def test_jitter_spreads_the_wait_but_never_past_the_limit(seed: int) -> None:
    config = BrokerConfig.parse({})
    assert 400 <= delay_ms(1, config, SystemRandom(seed)) <= 600
    assert 24_000 <= delay_ms(7, config, SystemRandom(seed)) <= 30_000
    assert delay_ms(10**6, config, SystemRandom(seed)) == 30_000


@pytest.mark.parametrize(
    ("interval_ms", "members", "expected_ms"),
    [
        (1000, 1, 1000),
        (1000, 1000 // MS_PER_TASK, 1000),
        (1000, 3_333, 3_333 * MS_PER_TASK),
        (1000, 100_000, CROWDED_INTERVAL_MS_MAX),
        (60_000, 100_000, 60_000),
    ],
)
def test_many_tasks_run_less_often_so_that_they_leave_the_broker_to_its_clients(
    interval_ms: int, members: int, expected_ms: int
) -> None:
    config = BrokerConfig.parse({f"{PREFIX}.interval.ms": str(interval_ms)})
    assert delay_ms(0, config, SystemRandom(1), members=members) == expected_ms
    assert delay_ms(1, config, SystemRandom(1), members=members) <= 600, "the back-off is its own"


def test_the_embedded_cluster_tries_again_within_five_seconds() -> None:
    config = BrokerConfig.parse(EMBEDDED_SETTINGS)
    assert max(delay_ms(count, config, SystemRandom(count)) for count in range(50)) == 5000
