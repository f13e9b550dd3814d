"""`ebbline pipeline …`: run it, see how it is doing, and look after what it has stored."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backend.cli.local.local_settings import (
    DatabaseOptions,
    DatabaseReportOptions,
    identity_of,
    refuse,
    remote_location,
)
from backend.cli.shared.options import show_json, with_options
from backend.cli.shared.value_text import printable_text
from backend.runtime.gc_tuning import GC_THRESHOLDS_OF_BATCHES, tuned

if TYPE_CHECKING:
    from backend.settings.settings import Settings
    from backend.store.queries.pipeline import PipelineStatus
    from spark.settings import PipelineSettings

pipeline_app = typer.Typer(help="The Spark pipeline over __remote_log_metadata.", no_args_is_help=True)
ATTENTION = 1
REMOTE_HELP = "Remote tier to compare with: a folder or URL (default: the data folder's); 'none' leaves it out."


@pipeline_app.command("run")
def run(
    connector: Annotated[
        str | None, typer.Option(help="rlmm (default), or kafka: Spark's own Kafka connector.")
    ] = None,
    jars: Annotated[Path | None, typer.Option(help="The folder of that connector's jars.")] = None,
) -> None:
    """Run the pipeline; reads the EBBLINE_* environment that `ebbline up` gives its children."""
    from spark.job import main as run_job

    chosen = {"EBBLINE_PIPELINE_CONNECTOR": connector, "EBBLINE_PIPELINE_CONNECTOR_JARS": jars}
    os.environ.update({name: str(value) for name, value in chosen.items() if value is not None})

    raise typer.Exit(run_job())


@pipeline_app.command("prepare")
def prepare() -> None:
    """Make later starts of the pipeline faster: keep the Java classes that Spark loads in one file (20 s, 160 MB)."""
    from spark.class_archive import NotArchived, archive_of, make_archive
    from spark.java import NoUsableJava, find_java

    with tempfile.TemporaryDirectory(prefix="ebbline-prepare-") as name:
        try:
            java = find_java(Path(name) / "java", os.environ)
            if (there := archive_of(java)) is not None:
                print(f"It is there already: {there}")
                return
            print(f"Spark's classes for Java {java.major} are kept in {make_archive(java, Path(name))}")
        except (NoUsableJava, NotArchived) as error:
            refuse(error)


@pipeline_app.command("status")
@with_options
def status(options: DatabaseReportOptions) -> None:
    """How far it has read, how fast, and what it could not read. Ends with 1 when it does not run as it should."""
    from backend.store import migrate
    from backend.store.connection.database import reading
    from backend.store.connection.limits import PAGES
    from backend.store.queries.pipeline import pipeline_status

    settings = options.settings()
    with _sentences("Stopped."):
        cluster_id = identity_of(settings).cluster_id
        engine = migrate.open_current(settings.database, PAGES, name="command")
        try:
            with reading(engine) as connection:
                report = pipeline_status(connection, cluster_id, time.time_ns() // 1_000_000)
        finally:
            engine.dispose()
    if options.json_:
        show_json(asdict(report))
    else:
        print("\n".join(_lines(report)))
    if report.process is None or not report.process.alive or report.process.state != "running":
        raise typer.Exit(ATTENTION)


def _lines(report: PipelineStatus) -> list[str]:
    process, lines = report.process, []
    if process is None:
        lines.append("The pipeline has never run on this database.")
    else:
        state = process.state if process.alive or not process.stale else f"gone (it was {process.state})"
        lines.append(f"Pipeline: {state}, last sign of life {process.age_ms / 1000:.0f} s ago")
        if process.message:
            lines.append(f"  {printable_text(process.message)}")
    lag = "not known" if report.lag_records is None else f"{report.lag_records} records"
    if report.lag_ms:
        lag += f", {report.lag_ms / 1000:.1f} s"
    lines.append(f"Read:     {report.records_read} offsets of {report.partitions} metadata partitions; behind: {lag}")
    lines.append(f"Ledger:   {report.segments} segments; {report.illegal_events} events not followed")
    lines.append(f"Aside:    {report.quarantined_records} records quarantined")
    if report.batches:
        lines.append(
            f"Batches:  {report.batches} in 5 minutes with {report.batch_records} records;"
            f" p50 {report.batch_p50_ms} ms, p99 {report.batch_p99_ms} ms, longest {report.batch_max_ms} ms"
        )
    return lines


@pipeline_app.command("at")
@with_options
def at(
    options: DatabaseReportOptions,
    moment: Annotated[str, typer.Argument(help="e.g. 2026-11-22T09:30 or 2026-11-22T09:30:00+01:00; without zone UTC")],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
) -> None:
    """What was remote at a moment of the past: segments, bytes and offsets by partition."""
    from backend.store import migrate
    from backend.store.connection.database import reading
    from backend.store.connection.limits import PAGES
    from backend.store.queries.time_travel import partitions_at

    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        refuse(f"{moment!r} is not a time: write it as 2026-11-22T09:30, in UTC.")
    at_ms = int((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() * 1000)
    settings = options.settings()
    with _sentences("Stopped."):
        cluster_id = identity_of(settings).cluster_id
        engine = migrate.open_current(settings.database, PAGES, name="command")
        try:
            with reading(engine) as connection:
                partitions = partitions_at(connection, cluster_id, at_ms, topic)
        finally:
            engine.dispose()
    if options.json_:
        show_json([asdict(partition) for partition in partitions])
        return
    for partition in partitions:
        remote = partition.remote
        offsets = f"offsets {remote.first_offset} to {remote.last_offset}"
        name = f"{printable_text(partition.topic)}-{partition.partition}"
        print(f"{name}: {remote.segments} segments, {remote.bytes} bytes, {offsets}")
    if not partitions:
        print("Nothing that the ledger knows was remote then.")


@pipeline_app.command("rebuild")
@with_options
def rebuild(
    options: DatabaseOptions,
    *,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Only delete the ledger, without a broker; the next start of the pipeline reads."
        ),
    ] = False,
) -> None:
    """Read __remote_log_metadata from its beginning beside the live ledger, then put the new one in its place."""
    from spark.rebuild import forget_ledger
    from spark.rebuild import rebuild as build

    settings = options.settings()
    with _sentences("Stopped; the ledger is as it was."), _long_work() as stop:
        if forget:
            cluster_id = identity_of(settings).cluster_id
            events = forget_ledger(settings.data_dir / "spark", settings.database, cluster_id)
            print(f"{events} events are forgotten; the pipeline reads the topic from its beginning at its next start.")
            return
        done = build(pipeline_settings(settings), stop, _print_progress)
    print(f"The ledger is new: {done.events_after} events of {done.records} records, before {done.events_before}.")


@pipeline_app.command("verify")
@with_options
def verify(options: DatabaseOptions, *, remote: Annotated[str | None, typer.Option(help=REMOTE_HELP)] = None) -> None:
    """Compare the ledger with the topic and with the files of the remote tier. Ends with 1 when they differ."""
    from backend.data_folder.data_folder import DataFolder
    from spark.verify import verify as compare

    settings = options.settings()
    # Where an attached cluster keeps its objects is known to its brokers alone.
    folder = "none" if settings.attach else str(DataFolder(settings.data_dir).remote)
    place = remote or remote_location(settings) or folder
    with _sentences("Stopped; nothing was changed."), _long_work() as stop:
        report = compare(pipeline_settings(settings), None if place == "none" else place, stop, _print_progress)
    for sentence in report.findings:
        print(printable_text(sentence))
    files = "" if report.files is None else f", {report.files} files of the remote tier"
    print(f"Compared: {report.records} records of the topic, {report.segments} segments{files}.")
    if report.older_than_topic:
        print(f"{report.older_than_topic} segments are older than what the topic still holds; they cannot be compared.")
    if report.older_than_history:
        print(f"{report.older_than_history} deleted segments are no longer in the ledger's history, as it has a limit.")
    print("No differences." if not report.differences else f"{report.differences} differences.")
    if report.differences:
        print("`ebbline pipeline rebuild` builds the ledger again from the topic; files are not changed by it.")
        raise typer.Exit(ATTENTION)


def pipeline_settings(settings: Settings) -> PipelineSettings:
    """As a child of `ebbline up` gets them; what the environment says wins, and an empty variable says nothing."""
    from spark.settings import from_environment

    identity = identity_of(settings)
    named = bool(os.environ.get("EBBLINE_BOOTSTRAP_SERVERS"))
    if identity.brokers == 0 and settings.attach is None and not named:
        refuse(f"The folder {settings.data_dir} is of an attached cluster: name it in EBBLINE_BOOTSTRAP_SERVERS.")
    # Passwords of the folder's cluster are not for brokers that the environment names.
    properties = None if named else settings.client_properties
    environment: dict[str, Any] = {
        "EBBLINE_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        **({} if properties is None else {"EBBLINE_CLIENT_PROPERTIES": str(properties)}),
        **{name: value for name, value in os.environ.items() if value},
        "EBBLINE_DATA_DIR": str(settings.data_dir),
        "EBBLINE_CLUSTER_ID": identity.cluster_id,
        "EBBLINE_DATABASE_URL": settings.database,
    }
    return from_environment(environment)


@contextmanager
def _long_work() -> Iterator[threading.Event]:
    """For commands that go through the whole ledger: what a signal sets, to be looked at between two parts."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        with tuned(GC_THRESHOLDS_OF_BATCHES):
            yield stop
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)


@contextmanager
def _sentences(stopped: str) -> Iterator[None]:
    """Ends a command of this module that fails with one line and exit code 2."""
    from sqlalchemy.exc import DBAPIError

    from backend.data_folder.data_folder import DataFolderError
    from backend.store.connection.database import StoreError
    from backend.store.connection.database_faults import diagnose, first_line
    from spark.kafka import BrokersAway, TopicMissing
    from spark.lock import Busy
    from spark.reading import MetadataGap
    from spark.rebuild import NotCaughtUp
    from spark.remote_folder import RemoteFolderError
    from spark.settings import SettingsError
    from spark.sinks.ledger_sink import DatabaseWentBack, Stopped

    try:
        yield
    except Stopped:
        refuse(stopped)
    except (DataFolderError, StoreError, SettingsError, Busy, NotCaughtUp, RemoteFolderError, MetadataGap) as error:
        refuse(error)
    except DatabaseWentBack as error:
        refuse(f"{error}. Try again.")
    except (BrokersAway, TopicMissing) as error:
        refuse(f"{error}. Are the brokers up?")
    except DBAPIError as error:
        diagnosis = diagnose(error)
        text = diagnosis.sentence if diagnosis else f"failed: {first_line(error)}"
        refuse(f"The database {text}. Nothing was changed.")


def _print_progress(stored: int, total: int) -> None:
    """Progress, for a person only."""
    if sys.stderr.isatty() and total:
        end = "\n" if stored >= total else ""
        print(f"\r{stored} of {total} records", end=end, file=sys.stderr, flush=True)
