"""Composition root of the control plane: gateway, observer, operations and API of one cluster, in one event loop.

It shares the loop with the engine in an embedded cluster and sees it only through the Kafka protocol: everything slow
(the database) runs on threads, everything long (a round of samples) awaits between requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from starlette.applications import Starlette

from backend.control.alerts.webhook import Webhook
from backend.control.control_database import WAITS, Database, DatabaseAway
from backend.control.control_settings import ControlSettings
from backend.control.database_keeper import DatabaseKeeper
from backend.control.deferred_audit import DeferredAudit
from backend.control.gateway.client_security import SecurityError, read_security
from backend.control.gateway.connection_pool import ConnectionPool
from backend.control.gateway.kafka_client import Gateway, parse_bootstrap
from backend.control.http.api_server import ApiServer, ApiServerError
from backend.control.http.api_tokens import ApiTokens
from backend.control.http.disk_room import DiskRoom
from backend.control.http.dispatch import NOBODY
from backend.control.http.endpoints import ENDPOINTS
from backend.control.http.openapi import document
from backend.control.http.pipeline_metrics import PipelineMetrics
from backend.control.http.product_metrics import ProductMetrics
from backend.control.http.readiness_checks import ReadinessChecks
from backend.control.http.routes import create_app
from backend.control.http.token_guesses import AUDIT_INTERVAL_S, TokenGuesses
from backend.control.lab.bootstrap.bootstrap_lab import BootstrapLab
from backend.control.lab.faults.fault_lab import FaultLab
from backend.control.lab.faults.fault_target import FaultTarget
from backend.control.observer.cluster_observer import ClusterObserver
from backend.control.observer.cluster_rows import WatchedCluster
from backend.control.observer.watches.broker_numbers import BrokerMetricSource
from backend.control.observer.watches.quorum_watch import QuorumWatch
from backend.control.observer.watches.reader_watch import ReaderWatch
from backend.control.operations.operation_kind import OperationContext
from backend.control.operations.service import OperationService
from backend.control.supervised_tasks import keep_running
from backend.control.wall_clock import now_ms
from backend.store import writes
from backend.store.engine import StoreError

VERSION: Final = "0.1.0"
HEARTBEAT_INTERVAL_MS: Final = 2_000
_log = logging.getLogger(__name__)


class ControlError(Exception):
    """The control plane cannot start. The message is one sentence for people."""


def _outside(app: Starlette, settings: ControlSettings) -> ApiServer | None:
    """The listener for other machines."""
    if settings.api_listen is None or settings.api_tls_certificate is None or settings.api_tls_key is None:
        return None
    (address,) = parse_bootstrap(settings.api_listen)[:1]
    return ApiServer(app, address.host, address.port, (settings.api_tls_certificate, settings.api_tls_key))


class ControlPlane:
    """One cluster's control plane. Make it, `start` it and `stop` it on the same event loop.

    `registries` gives the metric sources of the brokers in this process; `more_checks` adds to `/readyz`;
    `machine` is how the lab breaks the brokers of this process.
    """

    def __init__(
        self,
        settings: ControlSettings,
        *,
        registries: Callable[[], Iterable[BrokerMetricSource]] | None = None,
        more_checks: Callable[[], Mapping[str, str | None]] | None = None,
        machine: FaultTarget | None = None,
    ) -> None:
        self.settings = settings
        self.started_ms = now_ms()
        self._registries = registries
        self._more_checks = more_checks
        self._machine = machine
        self._tasks: list[asyncio.Task[None]] = []
        self._server: ApiServer | None = None
        self._outside: ApiServer | None = None
        self._built = False

    async def start(self) -> None:
        """Begins to watch, serves the API. The cluster may come later, and the database.

        Raises ControlError with one sentence; nothing is left running then.
        """
        try:
            self._build()
        except (StoreError, SecurityError) as error:
            raise ControlError(str(error)) from error
        try:
            await asyncio.to_thread(self.tokens.make_files, self.settings.run_dir)
            app = create_app(self)
            self._server = ApiServer(app, self.settings.api_host, self.settings.api_port)
            await self._server.start()
            self._outside = _outside(app, self.settings)
            if self._outside is not None:
                await self._outside.start()
        except ApiServerError as error:
            await self.stop()
            raise ControlError(str(error)) from error
        except OSError as error:
            await self.stop()
            raise ControlError(f"The folder {self.settings.run_dir} cannot be written: {error.strerror}.") from error
        self._tasks = [
            asyncio.create_task(keep_running("database", self.keeper.run), name="control-database"),
            asyncio.create_task(keep_running("observer", self.observer.run), name="control-observer"),
            asyncio.create_task(keep_running("heartbeat", self._beat), name="control-heartbeat"),
            asyncio.create_task(keep_running("quorum watch", self._watch_quorum), name="control-quorum"),
            asyncio.create_task(keep_running("recovery", self._recover), name="control-recovery"),
            asyncio.create_task(keep_running("guesses", self._watch_guesses), name="control-guesses"),
        ]
        _log.info("The control API listens on %s:%d", self.settings.api_host, self.port)

    def _build(self) -> None:
        settings = self.settings
        self.database = Database(settings.database_url, closed=WAITS)
        self.deferred = DeferredAudit()
        security = None if settings.client_properties is None else read_security(settings.client_properties)
        self.gateway = Gateway(parse_bootstrap(settings.bootstrap_servers), pool=ConnectionPool(security=security))
        watched = WatchedCluster(
            settings.cluster_id,
            settings.cluster_name,
            settings.cluster_kind,
            settings.bootstrap_servers,
            settings.sample_interval_ms,
        )
        webhook = Webhook(settings.webhook_url, settings.cluster_id, settings.cluster_name)
        readers = ReaderWatch(self.gateway, settings.broker_metrics, self._registries)
        self.observer = ClusterObserver(
            watched,
            self.gateway,
            self.database,
            readers,
            webhook,
            pid=os.getpid(),
            started_ms=self.started_ms,
            keep_days=settings.sample_days,
        )
        site = OperationContext(
            self.gateway,
            self.database,
            settings.cluster_id,
            settings.cluster_name,
            embedded=settings.cluster_kind == "embedded",
            changes_allowed=settings.allow_changes,
        )
        self.operations = OperationService(site, on_change=self.observer.refresh)
        self.bootstrap_lab = BootstrapLab(
            self.gateway,
            self.database,
            settings.cluster_id,
            settings.run_dir,
            embedded=settings.cluster_kind == "embedded",
        )
        attached = settings.cluster_kind != "embedded"
        self.quorum = QuorumWatch(self.gateway, None if attached else self._registries)
        self.fault_lab = FaultLab(
            self.gateway,
            None if attached else self._machine,
            busy=lambda: self.bootstrap_lab.running,
        )
        self.guesses = TokenGuesses()
        self.tokens = ApiTokens(self.database, settings.cluster_id)
        self.keeper = DatabaseKeeper(self.database, self.tokens.store, self.deferred)
        self.metrics = ProductMetrics(
            self.observer, PipelineMetrics(self.database.engine, settings.cluster_id), self._registries
        )
        disk = DiskRoom(settings.data_dir)
        self.readiness = ReadinessChecks(self.observer, self.database, self._more_checks, disk, self.keeper)
        self.openapi = document(ENDPOINTS, VERSION)
        self._built = True

    @property
    def port(self) -> int:
        """Where the API listens: the setting, or the free port that was found for 0."""
        return self._server.port if self._server is not None else self.settings.api_port

    async def stop(self) -> None:
        """Stops serving, lets plans in progress go on for a moment, stores what was seen, closes everything.

        Does nothing when there is nothing to stop: before a start, after a failed one, or the second time.
        """
        if not self._built:
            return
        self._built = False
        for server in (self._outside, self._server):
            if server is not None:
                await server.stop()
        await self._audit_guesses()
        await self.bootstrap_lab.close()
        await self.fault_lab.close()
        await self.operations.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            await self.observer.stop()
            await self._say("stopped", "The backend was stopped.")
        self._tasks = []
        await self.gateway.close()
        await self.database.close()

    async def _beat(self) -> None:
        while True:
            away = self.observer.state.away_reason
            await self._say("running", None if away is None else f"The cluster does not answer. {away}")
            await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1000)

    async def _watch_quorum(self) -> None:
        while True:
            await self.quorum.look(now_ms())
            self.observer.feature_levels = self.quorum.levels
            self.observer.quorum_replicas = self.quorum.replicas
            await asyncio.sleep(max(HEARTBEAT_INTERVAL_MS, self.settings.sample_interval_ms) / 1000)

    async def _watch_guesses(self) -> None:
        while True:
            await asyncio.sleep(AUDIT_INTERVAL_S)
            await self._audit_guesses()

    async def _audit_guesses(self) -> None:
        """One row for all of them, whatever came."""
        told = self.guesses.take_summary()
        if told is None:
            return
        _log.warning("The control API was called with tokens that are not known: %s", told)
        with contextlib.suppress(DatabaseAway):
            await self.operations.refused(NOBODY, "authenticate", "control API", told)

    async def _say(self, state: str, message: str | None) -> None:
        try:
            await self.database.write(
                lambda c: writes.heartbeat(
                    c,
                    self.settings.cluster_id,
                    "backend",
                    pid=os.getpid(),
                    started_ms=self.started_ms,
                    now_ms=now_ms(),
                    interval_ms=HEARTBEAT_INTERVAL_MS,
                    state=state,
                    message=message,
                    detail={
                        "quorum": self.quorum.facts,
                        "readers": self._readers(),
                        "eligible": self.eligible_report(),
                    },
                )
            )
        except DatabaseAway as error:
            _log.debug("no sign of life was stored: %s", error)

    def _readers(self) -> dict[str, Any]:
        seen = self.observer.round
        return self.observer.readers.facts(seen.partitions if seen is not None else ())

    def eligible_report(self) -> dict[str, Any] | None:
        """Eligible leader replicas as of the newest round; None: there was none yet."""
        facts = self.observer.facts
        return None if facts is None else facts.eligible.report(facts.at_ms)

    async def _recover(self) -> None:
        """Once the cluster answers, and the database: plans that a process before left in the middle."""
        while not self.observer.state.cluster_answers:
            await asyncio.sleep(0.5)
        await self.bootstrap_lab.recover()
        while True:
            await self.database.opened()
            try:
                recovered = await self.operations.recover(self.started_ms)
            except DatabaseAway as error:
                _log.info("Plans of an earlier run wait to be looked after: %s", error)
                await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1000)
                continue
            if recovered:
                _log.warning("%d plans of an earlier run were looked after", recovered)
            return
