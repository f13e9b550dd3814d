"""What must hold before anything is written or started. Each failure is one sentence with the way out."""

from __future__ import annotations

import socket

from backend.settings import LOOPBACK, Settings


class PreflightError(Exception):
    """The start is refused; the message says what and what to do."""


def check_ports(settings: Settings) -> None:
    """Raises PreflightError for the first port that is wanted twice or that another process holds."""
    wanted: list[tuple[int, str, str]] = []
    if settings.attach is None:
        for n in range(settings.brokers):
            wanted.append((settings.broker_port + n, f"broker {n + 1}", "EBBLINE_BROKER_PORT"))
            wanted.append((settings.metrics_port + n, f"metrics of broker {n + 1}", "EBBLINE_METRICS_PORT"))
        wanted.append((settings.controller_port, "the controller", "EBBLINE_CONTROLLER_PORT"))
        for n in range(1, settings.voters):
            wanted.append((settings.controller_port + n, f"controller {n + 1}", "EBBLINE_CONTROLLER_PORT"))
    wanted.append((settings.api_port, "the control API", "EBBLINE_API_PORT"))
    if settings.ui:
        wanted.append((settings.app_port, "the dashboard", "EBBLINE_APP_PORT"))
    taken: dict[int, tuple[str, str]] = {}
    for port, what, variable in wanted:
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


def check_remote_location(settings: Settings) -> None:
    """Raises PreflightError for a remote tier that cannot be opened."""
    if settings.remote_location is None:
        return
    from backend.engine.remote.rsm_object_store import check_location  # only here: it imports the engine

    try:
        check_location(settings.remote_location)
    except ValueError as error:
        raise PreflightError(str(error)) from error


def check_database(settings: Settings) -> None:
    """Raises PreflightError unless the backend can bring the database to its schema. Changes and creates nothing."""
    if settings.database_url is None and not settings.database_file.exists():
        return  # the backend makes it; and nobody waits half a second for the libraries below to be imported
    from backend.store import engine as store_engine
    from backend.store import migrate

    url = settings.database
    try:
        parsed = store_engine.parse_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise PreflightError(
                f"The database {url} is in memory, where each process would see its own: name a file, as in"
                " sqlite:////var/lib/ebbline/ebbline.db."
            )
        migrate.require_usable(url)
    except store_engine.StoreError as error:
        raise PreflightError(str(error)) from error
