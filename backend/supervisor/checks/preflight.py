"""Conditions that must hold before anything is written or started. Each failure is one sentence with the way out."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from backend.settings.settings import LOOPBACK, NONE, Settings
from spark.settings import SettingsError as PipelineSettingsError
from spark.settings import from_environment as pipeline_settings

# Variables that `ebbline up` gives the pipeline, whatever the environment says.
PIPELINE_IS_CONFIGURED: Final = {
    "EBBLINE_DATA_DIR": "/",
    "EBBLINE_CLUSTER_ID": "-",
    "EBBLINE_BOOTSTRAP_SERVERS": "-",
}

# Files and connections that a process of ours may need at the same time. One broker keeps the log of each of its
# partitions open: 50 of __remote_log_metadata, 50 of __consumer_offsets, 50 of __transaction_state and 50 of a first
# topic or two; 80 connections of clients and of the other brokers.
FILES_PER_BROKER: Final = 280
# Database, logs, control API, and a quarter that no connection may take (`ports.socket_network`).
FILES_OF_PROCESS: Final = 160
# macOS shows no limit, and takes none above this.
FILES_WISHED: Final = 10_240


class PreflightError(Exception):
    """The start is refused; the message says what and what to do."""


def check_ports(settings: Settings) -> None:
    """Raises PreflightError for the first port that is wanted twice or that another process holds."""
    ports: list[tuple[int, str, str]] = []
    if settings.attach is None:
        for n in range(settings.brokers):
            ports.append((settings.broker_port + n, f"broker {n + 1}", "EBBLINE_BROKER_PORT"))
            ports.append((settings.metrics_port + n, f"metrics of broker {n + 1}", "EBBLINE_METRICS_PORT"))
        ports.append((settings.controller_port, "the controller", "EBBLINE_CONTROLLER_PORT"))
        for n in range(1, settings.voters):
            ports.append((settings.controller_port + n, f"controller {n + 1}", "EBBLINE_CONTROLLER_PORT"))
    ports.append((settings.api_port, "the control API", "EBBLINE_API_PORT"))
    if settings.ui:
        ports.append((settings.app_port, "the dashboard", "EBBLINE_APP_PORT"))
    taken: dict[int, tuple[str, str]] = {}
    for port, what, variable in ports:
        if port in taken:
            other, other_variable = taken[port]
            raise PreflightError(f"Port {port} is set for {other} and for {what}: set {other_variable} or {variable}.")
        taken[port] = (what, variable)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise PreflightError(
                    f"Port {port} for {what} is in use ({error.strerror}): stop what listens there "
                    f"(is another `ebbline up` running?), or set {variable}."
                ) from error


def check_open_files(settings: Settings) -> None:
    """Lets this process and its children open as many files as they may. Raises PreflightError when that is too few."""
    allowed = _raise_open_files()
    together = settings.attach is None and not settings.process_per_broker
    needed = FILES_OF_PROCESS + FILES_PER_BROKER * (settings.brokers if together else 1)
    if allowed < needed:
        raise PreflightError(
            f"This machine lets a process open {allowed} files and connections, and {needed} are needed here:"
            f" raise the limit (`ulimit -n {max(4096, needed)}` in this shell, or nofile in /etc/security/limits.conf)."
        )


def _raise_open_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wished in (hard, FILES_WISHED):
        if soft == resource.RLIM_INFINITY or (hard != resource.RLIM_INFINITY and soft >= min(wished, hard)):
            break
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wished, hard))
            soft = wished
    return FILES_WISHED if soft == resource.RLIM_INFINITY else soft


def check_remote_location(settings: Settings, *, first: bool = True) -> str | None:
    """Raises PreflightError for a remote tier that cannot be opened; else a sentence of warning, or None.

    A store is asked once. Settings with which no copy can work refuse the `first` start of a folder, and a later one
    whose location is not the kept one: it would be kept in that one's place. Otherwise brokers serve without the
    store. One that does not answer, is busy or denies access never refuses: it may pass, and records may be there.
    """
    if settings.remote_location is None:
        _check_left_out(settings)
        return None
    if "://" not in settings.remote_location:
        _check_folder(Path(settings.remote_location).absolute())
        return None
    from backend.engine.remote.storage.object_store_manager import check_location  # only here: it imports the engine

    try:
        check_location(settings.remote_location)
    except ValueError as error:
        raise PreflightError(str(error)) from error
    if settings.attach is not None or settings.remote_location.startswith(("file:", "memory:")):
        return None
    from backend.supervisor.checks.store_check import check_store

    diagnosis = check_store(settings.remote_location)
    if diagnosis is None:
        return None
    if diagnosis.certain and (
        first or settings.read_kept(settings.data_dir).moves_remote_tier(settings.remote_location)
    ):
        raise PreflightError(diagnosis.sentence)
    return diagnosis.sentence


def _check_left_out(settings: Settings) -> None:
    """Nobody chose the data folder's own place: a tier that is elsewhere would be missing without a word."""
    if settings.attach is not None or "remote_location" in settings.model_fields_set:
        return
    shown = settings.read_kept(settings.data_dir).next_left_out.get("remote_location")
    if shown is not None:
        raise PreflightError(
            f"The remote tier of this folder is at {shown}, and its key is not kept: set EBBLINE_REMOTE_LOCATION as"
            f" before, or to `{NONE}` for a new tier in the data folder."
        )


def _check_folder(folder: Path) -> None:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        cause = "is no folder" if not existing.is_dir() else "cannot be written"
        raise PreflightError(
            f"The remote tier has no place: {existing} {cause}. Set EBBLINE_REMOTE_LOCATION to a folder that can"
            " be written, or to a URL such as s3://bucket/prefix."
        )


def check_data_path(settings: Settings, root: Path) -> None:
    """Raises PreflightError for a folder below which the brokers would not find their logs.

    Kafka's `log.dirs` is a list: it is split at commas, and what comes after one is another folder.
    """
    if settings.attach is None and "," in str(root):
        raise PreflightError(
            f"The path of the data folder {root} has a comma, at which Kafka's log.dirs is split: choose another folder"
            " with --data."
        )


def check_api_listen(settings: Settings) -> None:
    """Raises PreflightError when the API cannot be opened to other machines as it is asked to."""
    if settings.api_listen is None or settings.api_tls_certificate is None or settings.api_tls_key is None:
        return
    from backend.control.http.api_server import ApiServerError, check_certificate  # only here: it imports the server

    host, _, port = settings.api_listen.rpartition(":")
    host = host.strip("[]")
    try:
        check_certificate(settings.api_tls_certificate, settings.api_tls_key)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    except ApiServerError as error:
        raise PreflightError(str(error)) from error
    except OSError as error:
        raise PreflightError(
            f"The control API cannot listen on {settings.api_listen} ({error.strerror or error}): set"
            " EBBLINE_API_LISTEN to an address of this machine and a port that is free."
        ) from error


def check_alerts_file(settings: Settings, root: Path, environment: Mapping[str, str]) -> None:
    """Raises PreflightError when the file of receivers and rules has a mistake, or is named and not there."""
    path = settings.alerts_file or root / "alerts.toml"
    if settings.alerts_file is None and not path.exists():
        return
    # Only here: it imports the rules, and apprise where a receiver is one of its services.
    from backend.control.alerts.alerts_file import AlertsFileError, read_alerts

    try:
        read_alerts(path, environment)
    except AlertsFileError as error:
        raise PreflightError(str(error)) from error


def check_pipeline(settings: Settings, environment: Mapping[str, str]) -> None:
    """Raises PreflightError for an EBBLINE_PIPELINE_* that the pipeline would refuse."""
    try:
        pipeline_settings({**environment, **PIPELINE_IS_CONFIGURED, "EBBLINE_DATABASE_URL": settings.database})
    except PipelineSettingsError as error:
        raise PreflightError(str(error)) from error


def check_database(settings: Settings, *, first: bool, attached: str | None = None) -> None:
    """Raises PreflightError unless the backend can bring the database to its schema. Changes and creates nothing.

    A new folder for an `attached` cluster (its id) is refused while another program watches that cluster with the same
    database: its tokens would replace that one's.

    One that does not answer now refuses only the `first` start of a folder, where its URL may be wrong: brokers serve
    without it, and the backend waits for it, or restores it.
    """
    if settings.database_url is None and not settings.database_file.exists():
        return  # the backend makes it; and nobody waits half a second for the libraries below to be imported
    from backend.store import migrate
    from backend.store.backups.automatic_backups import backups
    from backend.store.connection import database as store_engine
    from backend.store.connection.database_faults import PASSING, DatabaseFault

    url = settings.database
    try:
        parsed = store_engine.parse_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise PreflightError(
                f"The database {store_engine.describe(url)} is in memory, where each process would see its own: name a"
                " file, as in sqlite:////var/lib/ebbline/ebbline.db."
            )
        migrate.require_usable(url)
        if first and attached is not None and migrate.running(url, attached):
            raise PreflightError(
                f"Another `ebbline up` watches this cluster with the database {store_engine.describe(url)}: use its"
                " dashboard, stop it first, or give this one another database with --database-url."
            )
    except store_engine.DatabaseAway as error:
        fault = None if error.diagnosis is None else error.diagnosis.fault
        file = store_engine.sqlite_file_of(url)
        restorable = fault is DatabaseFault.DAMAGED and file is not None and backups(file)
        if first or not (restorable or fault in PASSING):
            raise PreflightError(str(error)) from error
    except store_engine.StoreError as error:
        raise PreflightError(str(error)) from error
