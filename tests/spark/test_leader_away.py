"""A leader of the source topic that is away: no offsets until another one leads, and no processor burnt meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.engine_cluster import EngineCluster
from tests.spark.kafka_peer import admin

TOPIC = "remote-records"
# Another process asks until the offsets are those that are given, and prints its seconds of processor.
ASKS = f"""
import sys, time
from spark.kafka import BrokersAway, TopicOffsets
from tests.waiting import wait_until
offsets, end = TopicOffsets(sys.argv[1], "{TOPIC}", {{}}, "test"), dict(enumerate(map(int, sys.argv[2:])))
print(offsets.offsets_held(), flush=True)
sys.stdin.readline()
began_s, failures = time.process_time(), []
def another_leads():
    try:
        return offsets.high() == end
    except BrokersAway as error:
        failures.append(error)
wait_until("another broker leads", another_leads)
print(len(failures), time.process_time() - began_s)
"""


@pytest.mark.parametrize("victim", [2, 3])
def test_a_leader_that_is_away_is_waited_for_without_a_loop(tmp_path: Path, victim: int) -> None:
    settings = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
    with EngineCluster(tmp_path, brokers=3, voters=1, settings=settings) as cluster:
        client_admin = admin(cluster.bootstrap)
        client_admin.create_topics([NewTopic(TOPIC, 6, 3)])[TOPIC].result()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(12):
            producer.produce(TOPIC, b"a record", partition=number % 6)
        assert producer.flush(30) == 0
        command = [sys.executable, "-c", ASKS, cluster.bootstrap, *["2"] * 6]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert client.stdin is not None
            assert client.stdout.readline().count("low=0, high=2") == 6
            cluster.kill_broker(victim)
            client.stdin.write("\n")
            client.stdin.flush()
            failures, processor_s = client.stdout.readline().split()
        assert int(failures) >= 1, "the leader was away for four seconds"
        assert float(processor_s) < 1.0, "a loop without a pause takes three"
