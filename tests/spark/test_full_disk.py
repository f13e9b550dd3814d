"""Full disks: the sink waits, says so, and goes on when there is room. Only in `make soak`; mounts need root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import chown
from tempfile import gettempdir

import psycopg
import pyarrow as pa
import pytest

from backend.store import migrate
from backend.store.connection.database import create_engine
from spark.decode import to_batch
from spark.sinks.ledger_sink import LedgerSink
from tests.migrations.postgresql import Server
from tests.spark.records import mixed
from tests.spark.replay import expected
from tests.spark.running import CLUSTER, content
from tests.waiting import wait_until

SIZE_MB = 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine mounts nothing: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_full_disk_is_waited_for(database: str, small_disk: Path, request: pytest.FixtureRequest) -> None:
    if database == "sqlite":
        url = f"sqlite:///{small_disk / 'ebbline.db'}"
    else:
        server: Server = request.getfixturevalue("postgresql_server")
        chown(small_disk, server.user or os.getuid())
        for folder in small_disk.parents:  # the server's user must come to it
            if folder.is_relative_to(gettempdir()) and folder != Path(gettempdir()):
                folder.chmod(0o755)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'".encode())
            connection.execute(b"CREATE DATABASE on_small TABLESPACE small")
        url = server.url.rsplit("/", 1)[0] + "/on_small"
    migrate.upgrade(url)
    engine = create_engine(url)
    records = mixed(20_000)
    sink = LedgerSink(engine, cluster_id=CLUSTER, job="j", source_topic="t")
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(sink.write, 0, pa.Table.from_batches([to_batch(records)]))
        try:
            wait_until("the sink says that it waits", lambda: sink.fault, 60)
            said = str(sink.fault)
        finally:
            filler.unlink()
        written.result(120)
    assert "full" in said or "No space left" in said or "disk" in said, said
    assert sink.fault is None
    assert content(engine) == expected(records)
    engine.dispose()
    if database == "postgresql":
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(b"DROP DATABASE on_small WITH (FORCE)")
            connection.execute(b"DROP TABLESPACE small")
