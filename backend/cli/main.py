"""The `ebbline` command: what runs ebbline, and what asks its API. Thin: options in, exit code out."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from backend import __version__
from backend.cli.alerts import alert_commands, silence_commands
from backend.cli.alerts.maintenance_commands import maintenance_app
from backend.cli.inspect import cluster_commands, finding_commands
from backend.cli.inspect.set_aside import set_aside
from backend.cli.lab import lab_app
from backend.cli.local.database_commands import database_app
from backend.cli.local.local_settings import local_settings
from backend.cli.local.login import login
from backend.cli.local.pipeline_commands import pipeline_app
from backend.cli.local.token_commands import token_app
from backend.cli.plans import execution_commands, plan_commands
from backend.cli.plans.toggle import toggle
from backend.cli.quorum.quorum_commands import quorum_app
from backend.cli.quorum.snapshots import snapshot_app
from backend.cli.remote.remote_commands import remote_app

app = typer.Typer(
    name="ebbline",
    help="Operations dashboard and control plane for Kafka tiered storage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(pipeline_app, name="pipeline")
app.add_typer(database_app, name="db")
app.add_typer(token_app, name="token")
app.add_typer(remote_app, name="remote")
app.add_typer(quorum_app, name="quorum")
app.add_typer(snapshot_app, name="snapshot")
app.add_typer(lab_app, name="lab", rich_help_panel="Ask the API")
for command in (
    cluster_commands.status,
    cluster_commands.partitions,
    cluster_commands.describe,
    cluster_commands.segments,
    finding_commands.findings,
    toggle,
    finding_commands.audit,
    cluster_commands.config,
    finding_commands.readers,
    alert_commands.receivers,
    alert_commands.thresholds,
):
    app.command(rich_help_panel="Ask the API")(command)
for silence in (silence_commands.mute, silence_commands.unmute, silence_commands.acknowledge):
    app.command(rich_help_panel="Look after findings")(silence)
app.add_typer(maintenance_app, name="maintenance", rich_help_panel="Look after findings")
app.command()(finding_commands.rules)
app.command("set-aside")(set_aside)
app.add_typer(plan_commands.app, name="plan", rich_help_panel="Change the cluster")
for change in (
    execution_commands.apply,
    execution_commands.watch,
    execution_commands.pause,
    execution_commands.resume,
    execution_commands.stop,
    execution_commands.limit,
    execution_commands.revert,
    execution_commands.plans,
    execution_commands.export,
):
    app.command(rich_help_panel="Change the cluster")(change)


def _show_version(given: bool) -> None:
    if given:
        print(f"ebbline {__version__}")
        raise typer.Exit


@app.callback()
def ebbline(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def up(
    context: typer.Context,
    data: Annotated[Path | None, typer.Option(help="Data folder (default .ebbline).")] = None,
    database_url: Annotated[str | None, typer.Option(help="sqlite:///FILE or postgresql://…")] = None,
    brokers: Annotated[int | None, typer.Option(help="Number of embedded brokers, 1 to 9 (default 3).")] = None,
    controllers: Annotated[
        int | None,
        typer.Option(
            help="Voters that keep the metadata, 1 or 3; for a new folder (default 3 where there are as many brokers)."
        ),
    ] = None,
    cluster_name: Annotated[str | None, typer.Option(help="What a person types to confirm (default demo).")] = None,
    process_per_broker: Annotated[
        bool, typer.Option("--process-per-broker", help="Each broker in its own process, for throughput.")
    ] = False,
    attach: Annotated[str | None, typer.Option(help="Watch this Apache Kafka cluster: HOST:PORT,…")] = None,
    client_properties: Annotated[Path | None, typer.Option(help="How to connect to it, in librdkafka's names.")] = None,
    broker_metrics: Annotated[
        str | None, typer.Option(help="Prometheus text of each of its brokers, e.g. http://{host}:7071/metrics.")
    ] = None,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help="Plans may be carried out on it.")] = False,
    no_demo: Annotated[bool, typer.Option("--no-demo", help="No demo topic and traffic.")] = False,
    no_ui: Annotated[bool, typer.Option("--no-ui", help="No dashboard.")] = False,
    no_pipeline: Annotated[bool, typer.Option("--no-pipeline", help="No Spark pipeline.")] = False,
) -> None:
    """Run cluster, pipeline and dashboard on this machine."""
    if attach is None and (client_properties is not None or broker_metrics is not None or allow_changes):
        print(
            "ebbline: --client-properties, --broker-metrics and --allow-changes belong to --attach: add it.",
            file=sys.stderr,
        )
        raise typer.Exit(2)

    from backend.supervisor.children.prestart import prestarted_backend

    # `backend.cli.entry` has it at work already.
    with nullcontext(context.obj) if context.obj is not None else prestarted_backend() as prestarted:
        from backend.supervisor.up import run

        settings = local_settings(
            data_dir=data,
            database_url=database_url,
            brokers=brokers,
            controllers=controllers,
            cluster_name=cluster_name,
            process_per_broker=process_per_broker or None,
            attach=attach,
            client_properties=client_properties,
            broker_metrics=broker_metrics,
            allow_changes=allow_changes or None,
            demo=False if no_demo else None,
            ui=False if no_ui else None,
            pipeline=False if no_pipeline else None,
        )
        code = run(settings, prestarted)
    raise typer.Exit(code)


app.command()(login)


@app.command()
def broker(
    config: Annotated[Path, typer.Option(help="A file of Kafka broker properties.")],
) -> None:
    """Run one broker with Kafka property names."""
    from backend.startup.backend_entry import quick_import

    with quick_import():
        from backend.engine.cluster import run_broker

    raise typer.Exit(run_broker(str(config)))
