"""The pipeline on a Spark cluster with two workers; one of its executors is killed on the way. Only in `make soak`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from spark.settings import PipelineSettings
from tests.spark.kafka_peer import produce
from tests.spark.records import mixed
from tests.spark.replay import expected
from tests.spark.running import WAIT_S, content, environment, more_than, read_to
from tests.waiting import wait_until

MASTER = "local-cluster[2,1,1024]"  # two workers of one core and 1 GiB, each with an executor process


def executors(group: int) -> list[int]:
    """The processes of the group that are executors."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            process = int(path.parent.name)
            words = path.read_bytes().split(b"\0")
            if os.getpgid(process) == group and any(b"CoarseGrainedExecutorBackend" in word for word in words):
                found.append(process)
    return found


@pytest.mark.timeout(8 * WAIT_S)
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_executors_store_what_they_read_and_one_that_dies_loses_and_doubles_nothing(
    settings: PipelineSettings, engine: Engine
) -> None:
    records = mixed(20_000, seed=3)
    early = [record for record in records if record[1] < 2_000]
    settings = replace(settings, records_per_batch=1_000)
    produce(settings.bootstrap_servers, settings.source_topic, early)
    with open(settings.data_dir / "pipeline.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "spark.job"],
            env=environment(settings, EBBLINE_PIPELINE_SPARK_MASTER=MASTER),
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until("some batches are stored", more_than(engine, 2_000), 3 * WAIT_S)
        running = executors(process.pid)
        assert len(running) == 2
        os.kill(running[0], signal.SIGKILL)
        produce(settings.bootstrap_servers, settings.source_topic, [r for r in records if r[1] >= 2_000])
        wait_until("everything is stored", read_to(engine, records), 2 * WAIT_S)
        wait_until("a new executor is there", lambda: len(executors(process.pid)) == 2, WAIT_S)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert content(engine) == expected(records)
