"""The children of `ebbline up`: commands, environment, and how each shows that it lives."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.settings.settings import LOOPBACK, Settings
from backend.supervisor.checks.preparation import as_made
from backend.supervisor.children.child import ChildSpec
from backend.supervisor.children.process_health import any_broker_answers, http_answers, http_serves, readyz, serves
from spark.settings import WAIT_FOR_START

# The pipeline gives a sign every 0.2 s while it streams and at least every 10 s while it waits for something, but none
# while its JVM starts, which takes 10 s on an idle machine and two minutes on a very busy one.
PIPELINE_SIGN_S: Final = 150.0
# Settings that only the backend reads, and that may be absent.
OF_BACKEND: Final = (
    "broker_metrics",
    "webhook_url",
    "alerts_file",
    "heartbeat_url",
    "api_listen",
    "api_tls_certificate",
    "api_tls_key",
)


def environment(settings: Settings, folder: DataFolder, identity: ClusterIdentity) -> dict[str, str]:
    """Variables that every child reads, and nothing else (see ``backend/ARCHITECTURE.md``)."""
    return {
        "EBBLINE_DATA_DIR": str(folder.root),
        "EBBLINE_CLUSTER_ID": identity.cluster_id,
        "EBBLINE_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "EBBLINE_DATABASE_URL": settings.database,
        "EBBLINE_API_URL": settings.api_url,
        "EBBLINE_API_TOKEN_FILE": str(folder.run / "app.token"),
        "EBBLINE_CLUSTER_NAME": identity.cluster_name,
        "PYTHONUNBUFFERED": "1",
        **_attached(settings),
    }


def _attached(settings: Settings) -> dict[str, str]:
    if settings.attach is None:
        # An embedded cluster may be changed unless somebody has said that it may not.
        may = settings.allow_changes or "allow_changes" not in settings.model_fields_set
        return {"EBBLINE_CLUSTER_KIND": "embedded", "EBBLINE_ALLOW_CHANGES": str(may).lower()}
    variables = {"EBBLINE_CLUSTER_KIND": "attached", "EBBLINE_ALLOW_CHANGES": str(settings.allow_changes).lower()}
    if settings.client_properties is not None:
        variables["EBBLINE_CLIENT_PROPERTIES"] = str(settings.client_properties.absolute())
    return variables


def _backend_environment(settings: Settings, shared: dict[str, str]) -> dict[str, str]:
    variables = shared | {
        "EBBLINE_BROKERS": str(settings.brokers),
        "EBBLINE_BROKER_PORT": str(settings.broker_port),
        "EBBLINE_CONTROLLER_PORT": str(settings.controller_port),
        "EBBLINE_CONTROLLERS": str(settings.voters),
        "EBBLINE_METRICS_PORT": str(settings.metrics_port),
        "EBBLINE_API_PORT": str(settings.api_port),
        "EBBLINE_API_HOST": LOOPBACK,
        "EBBLINE_LOG_LEVEL": settings.log_level,
        "EBBLINE_DEMO": str(settings.demo).lower(),
        "EBBLINE_PIPELINE": str(settings.pipeline).lower(),
        "EBBLINE_SAMPLE_INTERVAL_MS": str(settings.sample_interval_ms),
        "EBBLINE_SAMPLE_DAYS": str(settings.sample_days),
        "EBBLINE_HEARTBEAT_INTERVAL_S": str(settings.heartbeat_interval_s),
    }
    for name in OF_BACKEND:
        value = getattr(settings, name)
        if value is not None:
            variables[f"EBBLINE_{name.upper()}"] = str(value.absolute() if isinstance(value, Path) else value)
    if settings.attach is not None:
        variables["EBBLINE_ATTACH"] = settings.attach
    # Set in any case: children have the environment of `up` besides, where they may be `none`.
    variables["EBBLINE_PUBLIC_URL"] = settings.public_url or ""
    variables["EBBLINE_REMOTE_LOCATION"] = settings.remote_location or ""
    return variables


def pipeline_lives(folder: DataFolder, now_s: float) -> bool:
    """Whether the pipeline was started, or gave a sign of life, not too long ago."""
    last_s = 0.0
    for name in ("pipeline.pid", "pipeline.life"):
        with suppress(OSError):
            last_s = max(last_s, (folder.run / name).stat().st_mtime)
    return now_s - last_s < PIPELINE_SIGN_S


def child_specs(settings: Settings, folder: DataFolder, identity: ClusterIdentity) -> list[ChildSpec]:
    """The children in start order."""
    settings = as_made(settings, identity)
    shared = environment(settings, folder, identity)
    backend_env = _backend_environment(settings, shared)
    python = sys.executable
    specs: list[ChildSpec] = []
    address = [*settings.bootstrap_servers.split(","), f"API {settings.api_url}"]
    # Those whose brokers run in the backend: it lives as long as one of them answers, whatever becomes of the API.
    brokers = range(settings.broker_port, settings.broker_port + settings.brokers)
    if settings.process_per_broker or settings.attach is not None:
        brokers = range(0)
    if settings.process_per_broker and settings.attach is None:
        # Only here, as it takes half a second to import the engine.
        from backend.supervisor.children.broker_processes import broker_specs

        specs += broker_specs(settings, folder, shared)
        backend_env["EBBLINE_PROCESS_PER_BROKER"] = "true"
        address = address[-1:]
    specs.append(
        ChildSpec(
            name="backend",
            command=[python, "-m", "backend.startup.backend_entry"],
            environment=backend_env,
            address="\n".join(address),
            stop_timeout_s=30.0,
            healthy=lambda: any_broker_answers(brokers) or http_answers(f"{settings.api_url}/healthz"),
            ready=lambda: serves(readyz(settings.api_url)),
            reports_liveness=bool(brokers),
        )
    )
    if settings.pipeline:
        specs.append(
            ChildSpec(
                name="pipeline",
                command=[python, "-m", "spark.job", WAIT_FOR_START],
                environment=shared,
                address="__remote_log_metadata →\n" + where_database(settings, folder),
                stop_timeout_s=20.0,
                waits_for_start=True,
                healthy=lambda: pipeline_lives(folder, time.time()),
            )
        )
    if settings.ui:
        specs.append(
            ChildSpec(
                name="app",
                command=[python, "-m", "app.run", "--port", str(settings.app_port)],
                environment=shared | {"EBBLINE_PUBLIC_URL": settings.public_url or ""},
                address=settings.app_url,
                stop_timeout_s=10.0,
                healthy=lambda: http_serves(f"{settings.app_url}/_stcore/health"),
            )
        )
    return specs


def where_database(settings: Settings, folder: DataFolder) -> str:
    """The database for people: without its password, and short when it lies in the data folder."""
    if settings.database_url is None:
        return f"SQLite, {settings.database_file.name}"
    from backend.store.connection.database import describe  # only here: it takes half a second to import

    return describe(settings.database).replace(f"sqlite:///{folder.root}/", "SQLite, ")
