"""PostgreSQL as people run it: a standby that takes over, a pooler between, TLS with the right and the wrong CA."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InvalidParameterValue
from sqlalchemy import text

from backend.store import migrate
from backend.store.connection.database import StoreError, create_engine, reading, writing
from backend.store.connection.limits import PAGES, SERVING
from backend.store.connection.postgresql import PatientConnection
from spark.sinks.ledger_sink import LedgerSink
from tests.certificates import Authority
from tests.control.site import ControlSite
from tests.control.steps import ended
from tests.databases import new_postgresql
from tests.migrations.postgresql import NoPostgreSQL, Server, running_server
from tests.ports import free_ports

STRANGE = (
    "DateStyle = 'SQL, DMY'",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_deferrable = on",
    "bytea_output = 'escape'",
    "statement_timeout = 50",
    "lock_timeout = 1",
    "standard_conforming_strings = off",
    "search_path = '$user', public",
)


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        with running_server() as started:
            yield started
    except NoPostgreSQL as reason:
        pytest.skip(str(reason))


@contextmanager
def standby_of(primary: Server) -> Iterator[Server]:
    program = primary.bin_dir / "pg_basebackup"
    if not program.exists():
        pytest.skip("this PostgreSQL has no pg_basebackup")
    folder = primary.folder.with_name(f"{primary.folder.name}-standby")
    folder.mkdir()
    if primary.user:
        shutil.chown(folder, primary.user)
    made = [str(program), "--dbname", primary.url, "--checkpoint=fast", "-R", "-D", str(folder / "data")]
    subprocess.run(made, user=primary.user, cwd="/", check=True, capture_output=True, timeout=120)
    standby = replace(primary, folder=folder, port=free_ports(1)[0])
    standby.start()
    try:
        yield standby
    finally:
        standby.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_standby_that_takes_over_under_load_is_found_and_goes_on(server: Server, tmp_path: Path) -> None:
    url = new_postgresql(server)
    with standby_of(server) as standby:
        name = url.rsplit("/", 1)[1]
        both = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
        two = f"postgresql://postgres@{both}/{name}?target_session_attrs=read-write"
        with ControlSite(tmp_path, database_url=two) as site:
            site.create_topic("orders", partitions=3)
            site.produce("orders", 30)
            site.wait_until("samples are stored", lambda: bool(site.partitions("orders")))
            plan = site.plan({"enable": True})
            site.wait_until("the standby has it", lambda: plans(standby, name) == 1)
            server.stop()
            try:
                site.wait_until("/readyz says so", lambda: site.operator.get("/readyz").status_code == 503)
                with psycopg.connect(standby.url, autocommit=True) as connection:
                    connection.execute(b"SELECT pg_promote()")
                site.wait_until("it is ready", lambda: site.operator.get("/readyz").status_code == 200, 60)
                recorder = site.plane.parts.observer.recorder
                site.wait_until_stored()
                assert recorder.dropped_rounds == 0
                assert site.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "checked"
                assert site.plan({"enable": True})["id"] > plan["id"]
            finally:
                server.start()


def plans(server: Server, name: str) -> int:
    with psycopg.connect(server.url.rsplit("/", 1)[0] + "/" + name) as connection:
        row = connection.execute("SELECT count(*) FROM operation").fetchone()
        return 0 if row is None else int(row[0])


@contextmanager
def pgbouncer(server: Server, folder: Path) -> Iterator[int]:
    program = shutil.which("pgbouncer", path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    folder = server.folder / "pgbouncer"
    folder.mkdir()
    (port,) = free_ports(1)
    (folder / "users").write_text('"postgres" ""\n')
    lines = ["[databases]", f"* = host=127.0.0.1 port={server.port}", "[pgbouncer]", "listen_addr = 127.0.0.1"]
    lines += [f"listen_port = {port}", "auth_type = any", f"auth_file = {folder / 'users'}", "unix_socket_dir ="]
    lines += ["pool_mode = transaction", "default_pool_size = 3", f"logfile = {folder / 'log'}"]
    content = "\n".join(lines).replace("* = host", "* = user=postgres host")
    (folder / "ini").write_text(content + "\n")
    for path in (folder, *folder.iterdir()):
        if server.user:
            shutil.chown(path, server.user)
    process = subprocess.Popen([program, str(folder / "ini")], user=server.user, cwd="/", stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(20)


def test_a_pooler_in_transaction_mode_does_no_harm(server: Server, tmp_path: Path) -> None:
    direct = new_postgresql(server)
    with pgbouncer(server, tmp_path) as port:
        url = f"postgresql://postgres@127.0.0.1:{port}/{direct.rsplit('/', 1)[1]}"
        with ControlSite(tmp_path, database_url=url) as site:
            site.create_topic("orders", partitions=3)
            for _ in range(30):  # more often than the driver would prepare a statement
                site.get("/v1/cluster")
            site.wait_until("samples are stored", lambda: bool(site.partitions("orders")))
            assert site.execute(site.plan({"enable": True})["id"]).status_code in (200, 202)
            recorder = site.plane.parts.observer.recorder
            site.wait_until(
                "rounds are stored", lambda: site.cluster.ask(lambda: site.plane.parts.observer.state.rounds) > 20
            )
            assert (recorder.away, recorder.dropped_rounds) == (None, 0)
            stores_batches(url)


def test_a_statement_for_which_somebody_waits_ends_within_15_s_and_one_that_removes_within_a_minute(
    server: Server,
) -> None:
    """A server that freezes within one is noticed 5 s later: `database-away` must be seen within 30 s."""
    engine = create_engine(new_postgresql(server), SERVING)
    limits_s = []
    for opens in (reading, writing, partial(writing, retention=True)):
        with opens(engine) as connection:
            statement = connection.scalar(text("SHOW statement_timeout"))
            driver = connection.connection.driver_connection
            assert isinstance(driver, PatientConnection)
            assert driver.limit is not None
            limits_s.append((statement, driver.limit.answer_s))
    engine.dispose()
    assert limits_s == [("10s", 15.0), ("15s", 20.0), ("1min", 65.0)]


def test_transactions_are_limited_and_statements_prepared_where_the_session_is_its_own(
    server: Server, tmp_path: Path
) -> None:
    direct = new_postgresql(server)
    with pgbouncer(server, tmp_path) as port:
        for url, prepares in ((direct, True), (direct.replace(str(server.port), str(port)), False)):
            engine = create_engine(url, PAGES)
            for opens, lock, statement in ((reading, "2s", "8s"), (writing, "2s", "8s")):
                with opens(engine) as connection:
                    assert connection.scalar(text("SHOW lock_timeout")) == lock
                    assert connection.scalar(text("SHOW statement_timeout")) == statement
            with reading(engine) as connection:
                assert connection.scalar(text("SHOW transaction_isolation")) == "repeatable read"
                for _ in range(10):
                    connection.execute(text("SELECT 1"))
                prepared = connection.scalar(text("SELECT count(*) FROM pg_prepared_statements"))
                assert isinstance(prepared, int)
                assert (prepared > 0) is prepares
            with psycopg.connect(url, autocommit=True) as other:  # in the session that the pooler gave out before
                assert other.execute(b"SHOW lock_timeout").fetchone() == ("0",)
            engine.dispose()


def stores_batches(url: str) -> None:
    import pyarrow as pa

    from spark.decode import to_batch
    from tests.spark.records import mixed
    from tests.spark.replay import expected
    from tests.spark.running import CLUSTER, content

    engine, records = create_engine(url), mixed(2_000)
    sink = LedgerSink(engine, cluster_id=CLUSTER, job="j", source_topic="t")
    for number in range(8):
        part = records[number * 250 : (number + 1) * 250]
        sink.write(number, pa.Table.from_batches([to_batch(part)]))
    assert content(engine) == expected(records)
    sink.close()
    engine.dispose()


def test_what_an_operator_set_for_the_database_changes_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zones of server, database and this program, another DateStyle, serializable transactions, other limits."""
    url = new_postgresql(server)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(b"ALTER SYSTEM SET timezone = 'America/St_Johns'")
        connection.execute(b"SELECT pg_reload_conf()")
        for setting in (*STRANGE, "TimeZone = 'Pacific/Kiritimati'"):
            connection.execute(f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET {setting}".encode())
    zone = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Pacific/Niue")  # 25 hours behind the database's
    monkeypatch.setenv("PGDATESTYLE", "German")
    time.tzset()
    try:
        with ControlSite(tmp_path, database_url=url) as site:
            site.create_topic("orders", partitions=3)
            site.produce("orders", 30)
            began_ms = 1000 * time.time()
            plan = site.plan({"enable": True})
            assert site.execute(plan["id"], reason="grün, за, 理由 −").status_code in (200, 202)
            site.wait_until("samples are stored", lambda: bool(site.partitions("orders")))
            assert ended(site, plan["id"])["state"] == "verified"
            (row, *_) = site.get("/v1/audit?limit=10")["items"]
            assert (row["operation_id"], row["reason"]) == (plan["id"], "grün, за, 理由 −")
            assert abs(row["at_ms"] - began_ms) < 60_000
            observer, recorder = site.plane.parts.observer, site.plane.parts.observer.recorder
            site.wait_until("rounds go on", lambda: site.cluster.ask(lambda: observer.state.rounds) > 20)
            site.wait_until_stored()
            assert recorder.dropped_rounds == 0
        stores_batches(url)
    finally:
        monkeypatch.undo()
        assert os.environ.get("TZ") == zone
        time.tzset()


def test_tls_is_as_strict_as_the_url_says(server: Server, tmp_path: Path) -> None:
    right, wrong = Authority(), Authority("another authority")
    path, unknown = right.write(tmp_path / "right.pem"), wrong.write(tmp_path / "wrong.pem")
    identity = right.identity("database", hosts=("localhost",))
    for pem, name in ((identity.certificate_pem, "server.crt"), (identity.key_pem, "server.key")):
        file = server.folder / "data" / name
        file.write_text(pem)
        file.chmod(0o600)
        if server.user:
            shutil.chown(file, server.user)
    with psycopg.connect(server.url, autocommit=True) as connection:
        try:
            connection.execute(b"ALTER SYSTEM SET ssl = on")
        except InvalidParameterValue:
            pytest.skip("the packaged PostgreSQL is built without TLS, and no other is installed")
        connection.execute(b"SELECT pg_reload_conf()")
    url = new_postgresql(server).replace("127.0.0.1", "localhost") + "?sslmode=verify-full&sslrootcert="
    assert migrate.current(url + str(path)) == migrate.head()
    with pytest.raises(StoreError, match="certificate verify failed"):
        migrate.current(url + str(unknown))
    with pytest.raises(StoreError, match="does not match host name"):
        migrate.current((url + str(path)).replace("localhost", "127.0.0.1"))
