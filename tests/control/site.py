"""A control plane that watches a cluster of the engine, on the same event loop, as the backend process runs them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from sqlalchemy import func, select

from backend.control.control_parts import ProcessPorts
from backend.control.control_plane import ControlPlane
from backend.control.control_settings import ControlSettings
from backend.engine.metrics.collector import BrokerCollector
from backend.store import tables as t
from backend.store.connection.database import reading
from tests.databases import new_sqlite
from tests.engine_cluster import CLUSTER_ID, EngineCluster
from tests.waiting import wait_until

T = TypeVar("T")
CLUSTER_NAME = "demo"
FLAG = "follower.fetch.last.tiered.offset.enable"
# Of 300 ms: brokers look for what there is to copy and to delete each 500 ms.
QUIET_ROUNDS = 7
# Segments of 20 batches (25 kB at 10 records a batch), of which local retention keeps some that are copied already.
TIERED = {
    "remote.storage.enable": "true",
    "segment.index.bytes": "240",
    "index.interval.bytes": "1",
    "local.retention.bytes": "60000",
}


class ControlSite:
    """Cluster, database and control plane; a context manager."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        voters: int = 1,
        settings: Mapping[str, str] | None = None,
        metrics: bool = True,
        plane: Mapping[str, Any] | None = None,
        database_url: str | None = None,
    ) -> None:
        """Without `metrics` the brokers publish no metrics, as those of an attached cluster; `plane` are more
        settings of the control plane; `database_url` is another database than the SQLite file that is made.
        """
        self._plane_settings = dict(plane or {})
        self.folder = folder
        self._metrics = metrics
        self.cluster = EngineCluster(
            folder / "cluster", brokers=brokers, voters=voters, tiering=True, settings=settings
        )
        self._database = folder / "ebbline.db"
        self._own_database = database_url is None
        self.database_url = database_url or f"sqlite:///{self._database}"
        self._keys = itertools.count(1)
        self._produced_ms = 0
        self._clients: list[httpx.Client] = []

    def __enter__(self) -> Self:
        if self._own_database:
            new_sqlite(self._database)
        self.cluster.__enter__()
        try:
            self.start_plane()
        except BaseException:
            self.cluster.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        try:
            self.stop_plane()
        finally:
            self.cluster.__exit__()

    def start_plane(self, *, ready: bool = True) -> None:
        """Waits until it is ready, unless it will not be."""
        settings = ControlSettings(
            data_dir=self.folder,
            cluster_id=CLUSTER_ID,
            cluster_name=CLUSTER_NAME,
            bootstrap_servers=self.cluster.bootstrap,
            database_url=self.database_url,
            api_port=0,
            sample_interval_ms=300,
            **self._plane_settings,
        )
        self.plane = ControlPlane(
            settings,
            ProcessPorts(registries=self._registries if self._metrics else None, faults=self.cluster.fault_injector),
        )
        self.cluster.call(self.plane.start())
        self.operator = self.client(self.token("operator"))
        if ready:
            self.wait_until("the API is ready", lambda: self.operator.get("/readyz").status_code == 200)

    def stop_plane(self) -> None:
        self.cluster.call(self.plane.stop())

    def _registries(self) -> list[Any]:
        return [BrokerCollector(broker.services.metrics) for broker in self.cluster.cluster.brokers.values()]

    def token(self, name: str) -> str:
        return (self.folder / "run" / f"{name}.token").read_text().strip()

    def client(self, token: str | None, **headers: str) -> httpx.Client:
        """A caller of the API; without a token an anonymous one."""
        given = headers if token is None else {"Authorization": f"Bearer {token}", **headers}
        url = f"http://127.0.0.1:{self.plane.port}"
        client = httpx.Client(base_url=url, headers=given, timeout=60, verify=False)  # certificates take 40 ms to load
        self._clients.append(client)
        return client

    def person(self, name: str, role: str) -> httpx.Client:
        """The dashboard, acting for a person."""
        return self.client(self.token("app"), **{"X-Ebbline-Actor": name, "X-Ebbline-Role": role})

    def get(self, path: str) -> Any:
        response = self.operator.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    def plan(self, inputs: Mapping[str, object], *, kind: str = "toggle_bootstrap") -> dict[str, Any]:
        response = self.operator.post("/v1/plans", json={"kind": kind, "inputs": dict(inputs)})
        assert response.status_code == 201, response.text
        plan: dict[str, Any] = response.json()["plan"]
        return plan

    def execute(
        self,
        plan_id: int,
        *,
        key: str | None = None,
        confirm: str = CLUSTER_NAME,
        reason: str = "a test",
        client: httpx.Client | None = None,
        wait_ms: int = 10_000,
    ) -> httpx.Response:
        return (client or self.operator).post(
            f"/v1/plans/{plan_id}/execute",
            json={"confirm": confirm, "reason": reason, "wait_ms": wait_ms},
            headers={"Idempotency-Key": key or f"key-{next(self._keys)}-{time.time_ns()}"},
        )

    def wait_until(self, what: str, question: Callable[[], T], timeout_s: float = 30.0) -> T:
        """The first answer that is true; fails with `what` when there is none."""
        return wait_until(what, question, timeout_s)

    @cached_property
    def admin(self) -> AdminClient:
        """Kept: the library ends the calls of a client that nobody holds."""
        return AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})

    def create_topic(
        self, name: str, *, partitions: int = 2, replicas: int = 3, config: Mapping[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        self.admin.create_topics([topic])[name].result(30)

    def produce(self, topic: str, records: int, *, value_bytes: int = 100) -> None:
        """Batches of 20, each later than the one before: segments end by their time index, at the same offsets."""
        full = {"linger.ms": 60_000, "batch.num.messages": 20}
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0, **full})
        for number in range(records):
            if number % 20 == 0:
                self._produced_ms = max(self._produced_ms + 1, int(1000 * time.time()))
            producer.produce(topic, value=b"v" * value_bytes, key=str(number).encode(), timestamp=self._produced_ms)
            if number % 20 == 19:
                producer.flush(30)
        assert producer.flush(30) == 0

    def wait_until_stored(self, timeout_s: float = 60.0) -> None:
        """Every round of samples that there has been by now is in the database."""
        observer = self.plane.parts.observer
        newest_ms = self.cluster.ask(lambda: observer.state.last_round_ms) or 0

        def stored() -> bool:
            with reading(self.plane.parts.database.engine) as connection:
                last_ms = connection.scalar(select(func.max(t.cluster_sample.c.sampled_ms)))
            return last_ms is not None and last_ms >= newest_ms

        self.wait_until("every round is stored", stored, timeout_s)

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(f"/v1/partitions?tiered=false&topic={topic}")["items"]
        return items

    def wait_until_quiet(self, *topics: str) -> None:
        """Nothing left to upload or to delete locally: the observer saw the same in several rounds."""
        names = ("log_start_offset", "local_log_start_offset", "latest_tiered_offset", "log_end_offset")
        last_facts: list[tuple[Any, ...]] = []
        unchanged_since = 0

        def facts(topic: str) -> list[tuple[Any, ...]]:
            rows = self.partitions(topic)
            replicas = [self.get(f"/v1/partitions/{topic}/{row['partition']}")["replicas"] for row in rows]
            return [tuple(part[name] for name in names) for part in [*rows, *itertools.chain(*replicas)]]

        def settled() -> bool:
            nonlocal last_facts, unchanged_since
            rounds = self.cluster.ask(lambda: self.plane.parts.observer.state.rounds)
            facts_by_topic = [facts(topic) for topic in topics]
            seen = list(itertools.chain(*facts_by_topic))
            if seen != last_facts or not all(facts_by_topic) or any(None in fact for fact in seen):
                last_facts, unchanged_since = seen, rounds
                return False
            return rounds >= unchanged_since + QUIET_ROUNDS

        self.wait_until(f"{', '.join(topics)} are quiet", settled, timeout_s=60)
