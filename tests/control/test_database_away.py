"""PostgreSQL in trouble: brokers, lab and samples go on, what needs the database says what it waits for and heals."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from tests.control.site import ControlSite
from tests.control.steps import LIMIT, SETTINGS, audit, ended, limits, moving, replicas, slow, steer
from tests.databases import new_postgresql
from tests.migrations.postgresql import NoPostgreSQL, Server, frozen, new_database, processes_of, running_server
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        with running_server() as started:
            yield started
    except NoPostgreSQL as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def site(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    url = owned(server, new_postgresql(server))
    with ControlSite(tmp_path_factory.mktemp("site"), database_url=url, settings=SETTINGS) as made:
        made.create_topic("orders", partitions=1)
        yield made


def owned(server: Server, url: str) -> str:
    """The same database for a role that is no superuser and owns its tables."""
    name = url.rsplit("/", 1)[1]
    with psycopg.connect(url, autocommit=True) as connection:
        role = f"role_{name}"
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        connection.execute(f"GRANT ALL ON DATABASE {name} TO {role}".encode())
        connection.execute(f"ALTER SCHEMA public OWNER TO {role}".encode())
        tables = connection.execute(
            b"SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
        )
        for (table,) in tables.fetchall():
            connection.execute(f'ALTER TABLE "{table}" OWNER TO {role}'.encode())
    return url.replace("postgres@", f"{role}@")


def admin(server: Server, site: ControlSite, *statements: str, database: bool = True) -> None:
    name = site.database_url.rsplit("/", 1)[1] if database else "postgres"
    url, writable = server.url.rsplit("/", 1)[0] + "/" + name, "-c default_transaction_read_only=off"
    with psycopg.connect(url, autocommit=True, options=writable) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def name_of(site: ControlSite) -> str:
    return site.database_url.rsplit("/", 1)[1]


def terminate(site: ControlSite) -> str:
    of_database = f"datname = '{name_of(site)}' AND pid <> pg_backend_pid()"
    return f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {of_database}"


def samples(server: Server, site: ControlSite) -> list[int]:
    with psycopg.connect(site.database_url.replace(f"role_{name_of(site)}@", "postgres@")) as connection:
        return [row[0] for row in connection.execute("SELECT sampled_ms FROM cluster_sample ORDER BY 1").fetchall()]


def read_only_by_setting(server: Server, site: ControlSite) -> Callable[[], None]:
    """As after a failover: the setting sticks to sessions that were made meanwhile."""
    admin(server, site, f"ALTER DATABASE {name_of(site)} SET default_transaction_read_only = on", terminate(site))
    return lambda: admin(server, site, f"ALTER DATABASE {name_of(site)} RESET default_transaction_read_only")


def read_only_by_server(server: Server, site: ControlSite) -> Callable[[], None]:
    admin(server, site, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    reset = "ALTER SYSTEM RESET default_transaction_read_only"
    return lambda: admin(server, site, reset, "SELECT pg_reload_conf()")


def right_withdrawn(server: Server, site: ControlSite) -> Callable[[], None]:
    role = f"role_{name_of(site)}"
    tables = ("cluster_sample", "process_status", "operation")
    admin(server, site, *(f"ALTER TABLE {table} OWNER TO postgres" for table in tables))
    return lambda: admin(server, site, *(f"ALTER TABLE {table} OWNER TO {role}" for table in tables))


def connections_limited(server: Server, site: ControlSite) -> Callable[[], None]:
    role = f"role_{name_of(site)}"
    admin(server, site, f"ALTER ROLE {role} CONNECTION LIMIT 0", terminate(site))
    return lambda: admin(server, site, f"ALTER ROLE {role} CONNECTION LIMIT -1")


def stopped(server: Server, site: ControlSite) -> Callable[[], None]:
    server.stop()
    return server.start


def killed(server: Server, site: ControlSite) -> Callable[[], None]:
    """As by the kernel when memory is short: sessions end when they notice, and the next start replays the log."""
    os.kill(processes_of(server)[0], signal.SIGKILL)

    def start() -> None:
        wait_until("the server starts once its sessions have ended", lambda: starts(server), 60)

    return start


def starts(server: Server) -> bool:
    try:
        server.start()
    except subprocess.CalledProcessError:
        return False
    return True


def locked(server: Server, site: ControlSite) -> Callable[[], None]:
    connection = psycopg.connect(site.database_url)
    tables = "segment, segment_event, partition_current, cluster_sample, cluster, process_status"
    while True:
        try:
            connection.execute(f"LOCK TABLE {tables}".encode())
        except psycopg.errors.DeadlockDetected:  # who held one wanted another
            connection.rollback()
        else:
            return connection.close


def hangs(server: Server, site: ControlSite) -> Callable[[], None]:
    stack = ExitStack()
    stack.enter_context(frozen(server))
    return stack.close


def hangs_in_a_write(server: Server, site: ControlSite) -> Callable[[], None]:
    """Frozen in the middle of a transaction of the observer, which waits for a lock there."""
    stack = ExitStack()
    holder = stack.enter_context(psycopg.connect(site.database_url))
    holder.execute(b"LOCK TABLE cluster_sample IN SHARE MODE")
    waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'ebbline backend' AND wait_event_type = 'Lock'"
    with psycopg.connect(server.url, autocommit=True) as looker:
        wait_until("a write waits for it", lambda: looker.execute(waits.encode()).fetchone() is not None)
    stack.enter_context(frozen(server))
    return stack.close


TROUBLES: dict[str, tuple[Callable[[Server, ControlSite], Callable[[], None]], str]] = {
    "stopped": (stopped, "does not answer"),
    "killed": (killed, "does not answer"),
    "read-only": (read_only_by_setting, "refuses writes, it is read-only"),
    "read-only by the server": (read_only_by_server, "refuses writes, it is read-only"),
    "a right withdrawn": (right_withdrawn, "permission denied for table"),
    "no more connections": (connections_limited, "takes no more connections"),
    "locked": (locked, "is held by another program"),
    "frozen": (hangs, "does not answer"),
    "frozen in a write": (hangs_in_a_write, "does not answer"),
}
# In the others it still takes reads.
NO_RESPONSE = ("stopped", "killed", "frozen")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def trouble(name: str, server: Server, site: ControlSite) -> Iterator[str]:
    bring, said = TROUBLES[name]
    heal = bring(server, site)
    try:
        yield said
    finally:
        heal()


@pytest.mark.parametrize("name", TROUBLES)
def test_a_database_in_trouble_is_said_in_seconds_and_nothing_is_lost(
    name: str, server: Server, site: ControlSite, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = site.plane.parts.observer.recorder
    site.wait_until("samples are stored", lambda: len(samples(server, site)) > 3)
    rounds = site.cluster.ask(lambda: site.plane.parts.observer.state.rounds)
    began_ms = now_ms()
    with trouble(name, server, site) as said:
        broken_ms = now_ms()
        site.wait_until("/readyz says so", lambda: said in unready(site), 20)
        if name in NO_RESPONSE:
            since_ms = site.operator.get("/readyz").json()["database_responded_ms"]
            assert began_ms - 5_000 < since_ms < broken_ms + 1_000
        began_s = time.monotonic()
        answer = site.operator.post("/v1/plans", json={"kind": "toggle_bootstrap", "inputs": {"enable": True}})
        # Five seconds for the database, and a machine with other work: far from one that hangs.
        assert time.monotonic() - began_s < 15
        assert answer.status_code == 503, answer.text
        assert "it is asked again" in answer.json()["detail"]
        site.produce("orders", 10)  # brokers do not need it
        site.wait_until(
            "rounds go on", lambda: site.cluster.ask(lambda: site.plane.parts.observer.state.rounds) > rounds + 3
        )
        site.wait_until("rounds wait", lambda: site.cluster.ask(lambda: recorder.waiting_rounds) >= 3, 20)
        down = "ebbline_database_up 0.0"
        site.wait_until("the metric says so", lambda: down in site.operator.get("/metrics").text, 20)
    site.wait_until("it is ready again", lambda: site.operator.get("/readyz").status_code == 200, 30)
    site.wait_until_stored()
    assert recorder.dropped_rounds == 0
    taken = samples(server, site)
    assert max(b - a for a, b in pairwise(taken)) < 5_000, "a hole in the history"
    assert "Traceback" not in caplog.text
    assert "fault of this program" not in caplog.text


def unready(site: ControlSite) -> str:
    return str(site.operator.get("/readyz").json()["checks"]["database"])


def test_the_lab_acts_without_a_database_and_the_audit_has_it_afterwards(server: Server, site: ControlSite) -> None:
    site.wait_until("it is ready", lambda: site.operator.get("/readyz").status_code == 200)
    with trouble("stopped", server, site):
        site.wait_until("/readyz says so", lambda: "does not answer" in unready(site), 20)
        assert site.operator.get("/v1/lab/faults").status_code == 200
        answer = site.operator.post("/v1/lab/faults", json={"scenario": "broker-kill", "broker": 3})
        assert answer.status_code == 202, answer.text
        assert site.operator.post("/v1/lab/faults/heal", json={}).status_code == 202
        assert site.client("x" * 43).get("/v1/cluster").status_code == 503  # it cannot be known
    actions = site.wait_until("the audit has both", lambda: audited(site), 30)
    assert actions == ["heal", "break"]
    # It serves once the session of the killed one is over; until then the cluster lists that one, and plans ask it.
    site.wait_until("broker 3 serves again", lambda: site.get("/v1/lab/faults")["run"]["state"] == "healed", 90)


def test_a_move_goes_on_over_a_stop_of_the_server_and_leaves_no_limit(server: Server, site: ControlSite) -> None:
    site.wait_until("it is ready", lambda: site.operator.get("/readyz").status_code == 200)
    plan = slow(site, "moved", 2, at_once=1)
    site.execute(plan["id"], wait_ms=0)
    moving(site, plan["id"])
    with trouble("stopped", server, site) as said:
        site.wait_until("/readyz says so", lambda: said in unready(site), 20)
        site.produce("moved", 20)
        assert limits(site, "moved"), "the move goes on without the database"
    site.wait_until("it is ready", lambda: site.operator.get("/readyz").status_code == 200, 30)
    assert site.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "running"
    steer(site, plan["id"], "limit", throttle_bytes_per_s=LIMIT)
    done = ended(site, plan["id"])
    assert done["state"] == "verified", done["result"]
    assert replicas(site, "moved") == {0: [1, 2, 3], 1: [1, 2, 3]}
    assert limits(site, "moved") == {}
    assert [row for row in audit(site, plan["id"]) if row[0] == "execute reassign"] == [
        ("execute reassign", "accepted"),
        ("execute reassign", "verified"),
    ]


def audited(site: ControlSite) -> list[str] | None:
    answer = site.operator.get("/v1/audit")
    actions = (
        [row["action"] for row in answer.json()["items"] if row["action"] in ("break", "heal")]
        if answer.status_code == 200
        else []
    )
    return actions if len(actions) >= 2 else None


def test_a_start_while_the_database_is_away_serves_and_makes_the_schema_once_it_answers(
    server: Server, tmp_path: Path
) -> None:
    url = new_database(server.url, "empty")
    site = ControlSite(tmp_path, database_url=url)
    server.stop()
    try:
        site.cluster.__enter__()
        try:
            site.start_plane(ready=False)
            site.wait_until(
                "it says what it waits for",
                lambda: "Connection refused" in unready(site) or "does not answer" in unready(site),
            )
            assert site.operator.get("/readyz").json()["starting"] is False
            site.create_topic("orders", partitions=1)
            site.produce("orders", 10)
            assert site.operator.get("/v1/lab/faults").status_code == 200
            recorder = site.plane.parts.observer.recorder
            site.wait_until("rounds wait", lambda: site.cluster.ask(lambda: recorder.waiting_rounds) > 0)
            server.start()
            site.wait_until("it is ready", lambda: site.operator.get("/readyz").status_code == 200, 60)
            site.wait_until("the topic is on the pages", lambda: bool(site.partitions("orders")))
            assert site.cluster.ask(lambda: recorder.dropped_rounds) == 0
        finally:
            site.__exit__()
    finally:
        if not server_runs(server):
            server.start()


def server_runs(server: Server) -> bool:
    try:
        psycopg.connect(server.url).close()
    except psycopg.OperationalError:
        return False
    return True
