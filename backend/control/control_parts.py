"""The parts of a control plane, built whole: each gets what it needs when it is made, and nothing is set afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from starlette.applications import Starlette

from backend import __version__
from backend.control.alerts.alert_delivery import AlertDelivery
from backend.control.alerts.alert_texts import ClusterName
from backend.control.alerts.alerts_watch import COPY_NAME, DEFAULT_NAME, AlertsFiles, AlertsFileWatch
from backend.control.alerts.delivered_file import DELIVERED_NAME
from backend.control.alerts.heartbeat import LifeSignal, WatchSigns
from backend.control.control_database import WAITS, Database
from backend.control.control_settings import ControlSettings
from backend.control.database_keeper import DatabaseKeeper
from backend.control.deferred_audit import DeferredAudit
from backend.control.gateway.client_security import read_security
from backend.control.gateway.connection_pool import ConnectionPool
from backend.control.gateway.kafka_client import Gateway, parse_bootstrap
from backend.control.http.alert_metrics import AlertMetrics
from backend.control.http.api_tokens import ApiTokens
from backend.control.http.authentication import Authenticator
from backend.control.http.disk_room import DiskRoom
from backend.control.http.dispatch import Dispatcher
from backend.control.http.endpoints import ENDPOINTS
from backend.control.http.handlers.alert_handlers import AlertHandlers
from backend.control.http.handlers.finding_handlers import FindingHandlers
from backend.control.http.handlers.lab_handlers import LabHandlers
from backend.control.http.handlers.maintenance_handlers import MaintenanceHandlers
from backend.control.http.handlers.plan_handlers import PlanHandlers
from backend.control.http.handlers.read_handlers import ReadHandlers
from backend.control.http.handlers.system_handlers import SystemHandlers
from backend.control.http.openapi import document
from backend.control.http.pipeline_metrics import PipelineMetrics
from backend.control.http.product_metrics import ProductMetrics
from backend.control.http.readiness_checks import ReadinessChecks
from backend.control.http.routes import create_app
from backend.control.http.token_guesses import TokenGuesses
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


@dataclass(frozen=True, slots=True)
class ProcessPorts:
    """Ports that the process around the control plane offers it.

    `registries` gives the metric sources of the brokers in this process; `more_checks` adds to `/readyz`; `faults` is
    how the lab injects faults into the brokers of this process.
    """

    registries: Callable[[], Iterable[BrokerMetricSource]] | None = None
    more_checks: Callable[[], Mapping[str, str | None]] | None = None
    faults: FaultTarget | None = None


@dataclass(frozen=True, slots=True)
class ControlParts:
    """The parts whose life `ControlPlane` begins and ends, and the API that serves them."""

    database: Database
    keeper: DatabaseKeeper
    gateway: Gateway
    observer: ClusterObserver
    life_signal: LifeSignal
    quorum: QuorumWatch
    operations: OperationService
    bootstrap_lab: BootstrapLab
    fault_lab: FaultLab
    tokens: ApiTokens
    guesses: TokenGuesses
    api: Starlette


def build_parts(settings: ControlSettings, ports: ProcessPorts, started_ms: int) -> ControlParts:
    """Builds everything; nothing runs yet. Raises StoreError, SecurityError."""
    embedded = settings.cluster_kind == "embedded"
    database = Database(settings.database_url, closed=WAITS)
    security = None if settings.client_properties is None else read_security(settings.client_properties)
    gateway = Gateway(parse_bootstrap(settings.bootstrap_servers), pool=ConnectionPool(security=security))
    observer = _observer(settings, ports, gateway, database, started_ms)
    context = OperationContext(
        gateway,
        database,
        settings.cluster_id,
        settings.cluster_name,
        embedded=embedded,
        changes_allowed=settings.allow_changes,
    )
    operations = OperationService(context, on_change=observer.refresh)
    quorum = QuorumWatch(gateway, ports.registries if embedded else None)
    bootstrap_lab = BootstrapLab(gateway, database, settings.cluster_id, settings.run_dir, embedded=embedded)
    fault_lab = FaultLab(gateway, ports.faults if embedded else None, busy=lambda: bootstrap_lab.running)
    tokens, guesses, audit = ApiTokens(database, settings.cluster_id), TokenGuesses(), DeferredAudit(database)
    keeper = DatabaseKeeper(database, tokens.store, audit)
    pipeline = PipelineMetrics(database.engine, settings.cluster_id)
    life_signal = LifeSignal(settings.heartbeat_url, settings.heartbeat_interval_s, lambda: _signs(observer))
    metrics = ProductMetrics(observer, pipeline, ports.registries, AlertMetrics(observer.alerts, life_signal))
    readiness = ReadinessChecks(observer, database, ports.more_checks, DiskRoom(settings.data_dir), keeper)
    handlers = (
        SystemHandlers(started_ms, readiness, metrics, document(ENDPOINTS, __version__)),
        ReadHandlers(settings, database, observer, quorum),
        PlanHandlers(operations),
        FindingHandlers(database, settings.cluster_id, lambda: observer.findings.unstored),
        MaintenanceHandlers(database, settings.cluster_id),
        AlertHandlers(observer.alerts, audit, settings.cluster_id),
        LabHandlers(bootstrap_lab, fault_lab, audit, settings.cluster_id),
    )
    dispatcher = Dispatcher(Authenticator(tokens, guesses, metrics), operations, metrics)
    api = create_app(handlers, dispatcher)
    return ControlParts(
        database,
        keeper,
        gateway,
        observer,
        life_signal,
        quorum,
        operations,
        bootstrap_lab,
        fault_lab,
        tokens,
        guesses,
        api,
    )


def _observer(
    settings: ControlSettings, ports: ProcessPorts, gateway: Gateway, database: Database, started_ms: int
) -> ClusterObserver:
    watched = WatchedCluster(
        settings.cluster_id,
        settings.cluster_name,
        settings.cluster_kind,
        settings.bootstrap_servers,
        settings.sample_interval_ms,
    )
    return ClusterObserver(
        watched,
        gateway,
        database,
        ReaderWatch(gateway, settings.broker_metrics, ports.registries),
        _alert_delivery(settings),
        pid=os.getpid(),
        started_ms=started_ms,
        keep_days=settings.sample_days,
    )


def _alert_delivery(settings: ControlSettings) -> AlertDelivery:
    files = AlertsFiles(settings.alerts_file, settings.data_dir / DEFAULT_NAME, settings.run_dir / COPY_NAME)
    return AlertDelivery(
        ClusterName(settings.cluster_id, settings.cluster_name, settings.public_url),
        AlertsFileWatch(files),
        settings.run_dir / DELIVERED_NAME,
        settings.webhook_url,
    )


def _signs(observer: ClusterObserver) -> WatchSigns:
    return WatchSigns(
        observer.ended_s,
        observer.recorder.stored_s,
        observer.findings.behind_ms / 1000,
        observer.interval_ms / 1000,
    )
