"""The backend is killed (SIGKILL) at every request of a reassignment; another one brings it to its end."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator

import pytest

from tests.control.mortal_plane import carry_out
from tests.control.site import CLUSTER_NAME, ControlSite
from tests.control.steps import audit, ended, limits, replicas
from tests.effort import effort
from tests.engine_cluster import CLUSTER_ID

TOPIC = "mortal"
# A life that makes fewer requests than it may ends the plan; a plan makes about fifteen.
LIVES_MAX = 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with ControlSite(tmp_path_factory.mktemp("site")) as made:
        made.create_topic(TOPIC, partitions=3, replicas=1)
        made.produce(TOPIC, 60)
        made.wait_until("it is seen", lambda: len(made.partitions(TOPIC)) == 3)
        yield made


@pytest.mark.parametrize("round_", range(effort(1, 20)))
def test_a_move_that_was_killed_at_each_of_its_requests_ends_verified_without_a_limit(
    site: ControlSite, round_: int
) -> None:
    before = replicas(site, TOPIC)
    expected = {p: [1, 2, 3][p:] + [1, 2, 3][:p] for p in before} if round_ % 2 == 0 else {p: [p + 1] for p in before}
    assignments = [{"topic": TOPIC, "partition": p, "replicas": r} for p, r in expected.items()]
    inputs = {"assignments": assignments, "throttle_bytes_per_s": 50_000_000, "at_once": 1, "elect": True}
    plan = site.plan(inputs, kind="reassign")
    assert plan["state"] == "checked", plan["checks"]
    settings = {
        "data_dir": site.folder,
        "cluster_id": CLUSTER_ID,
        "cluster_name": CLUSTER_NAME,
        "bootstrap_servers": site.cluster.bootstrap,
        "database_url": site.database_url,
        "api_port": 0,
        "sample_interval_ms": 300,
    }
    site.stop_plane()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.control.mortal_plane"])
    killed = 0
    for life in range(1, LIVES_MAX):
        process = context.Process(
            target=carry_out, args=(settings, plan["id"], life), kwargs={"answered": (life + round_ // 2) % 2 == 0}
        )
        process.start()
        process.join(120)
        assert process.exitcode in (0, -signal.SIGKILL), f"life {life} ended with {process.exitcode}"
        if process.exitcode == 0:
            break
        killed += 1
    site.start_plane()
    assert killed >= (3 if round_ % 2 == 0 else 1), "a plan that was killed nowhere proves nothing"
    assert ended(site, plan["id"])["state"] == "verified"
    assert replicas(site, TOPIC) == expected
    assert limits(site, TOPIC) == {}
    assert [result for _, result in audit(site, plan["id"])].count("verified") == 1
