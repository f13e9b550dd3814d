"""The pipeline on a standalone Spark cluster with two workers; one of its executors is killed on the way. Only in
`make soak`."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyspark
import pytest
from sqlalchemy import Engine

from spark.java import NoUsableJava, find_java
from spark.settings import PipelineSettings
from tests.ports import free_ports
from tests.spark.kafka_peer import produce
from tests.spark.records import mixed
from tests.spark.replay import expected
from tests.spark.running import WAIT_S, content, more_than, pipeline_process, read_to
from tests.waiting import wait_until

WORKERS = 2
HERE = ("--host", "127.0.0.1", "--webui-port", "0")


@dataclass(frozen=True)
class SparkCluster:
    """A master and two workers of one core and 1 GiB each, all in one process group."""

    master: str
    processes: list[subprocess.Popen[bytes]]
    log: Path

    def executors(self) -> list[int]:
        """The processes that workers have started for the pipeline."""
        processes = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                process = int(path.parent.name)
                is_executor = b"CoarseGrainedExecutorBackend" in path.read_bytes()
                if is_executor and os.getpgid(process) == self.processes[0].pid:
                    processes.append(process)
        return processes

    def registered(self) -> bool:
        """Whether the master knows both workers; raises when one of the three has ended."""
        assert all(process.poll() is None for process in self.processes), self.log.read_text()[-2_000:]
        return self.log.read_text(errors="replace").count("Successfully registered with master") == WORKERS


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Started by what the wheel of pyspark has; everything of it is killed at the end."""
    try:
        java = find_java(folder / "java", os.environ)
    except NoUsableJava as reason:
        pytest.skip(str(reason))
    program = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    (port,) = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    given = {"JAVA_HOME": str(java.home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
    place = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
    commands: list[tuple[str, ...]] = [("master.Master", *HERE, "--port", str(port))]
    commands += [("worker.Worker", *HERE, *place, master)] * WORKERS
    cluster = SparkCluster(master, [], folder / "spark-cluster.log")
    try:
        with open(cluster.log, "ab") as log:
            for name, *words in commands:
                group = cluster.processes[0].pid if cluster.processes else 0
                cluster.processes.append(
                    subprocess.Popen(
                        [str(program), f"org.apache.spark.deploy.{name}", *words],
                        env=os.environ | given, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=group,
                    )
                )  # fmt: skip
        wait_until("both workers are registered", cluster.registered, WAIT_S)
        yield cluster
    finally:
        if cluster.processes:
            with suppress(ProcessLookupError):
                os.killpg(cluster.processes[0].pid, signal.SIGKILL)
        for process in cluster.processes:
            process.wait()


@pytest.mark.timeout(8 * WAIT_S)
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_executors_store_what_they_read_and_one_that_dies_loses_and_doubles_nothing(
    settings: PipelineSettings, engine: Engine, tmp_path: Path
) -> None:
    records = mixed(20_000, seed=3)
    early = [record for record in records if record[1] < 2_000]
    settings = replace(settings, records_per_batch=1_000)
    produce(settings.bootstrap_servers, settings.source_topic, early)
    (ui_port,) = free_ports(1)
    with spark_cluster(tmp_path) as cluster:
        more = {"EBBLINE_PIPELINE_SPARK_MASTER": cluster.master, "EBBLINE_PIPELINE_SPARK_UI_PORT": str(ui_port)}
        with pipeline_process(settings, **more):
            wait_until("some batches are stored", more_than(engine, 2_000), 3 * WAIT_S)
            with urllib.request.urlopen(f"http://127.0.0.1:{ui_port}/jobs/", timeout=30) as page:
                assert b"ebbline-pipeline" in page.read()
            running = cluster.executors()
            assert len(running) == WORKERS
            os.kill(running[0], signal.SIGKILL)
            produce(settings.bootstrap_servers, settings.source_topic, [r for r in records if r[1] >= 2_000])
            wait_until("everything is stored", read_to(engine, records), 2 * WAIT_S)
            wait_until("a new executor is there", lambda: len(cluster.executors()) == WORKERS, WAIT_S)
    assert content(engine) == expected(records)
