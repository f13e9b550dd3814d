"""The `ebbline` command: up, broker, pipeline, backend. Thin: options in, exit code out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

app = typer.Typer(
    name="ebbline",
    help="Operations dashboard and control plane for Kafka tiered storage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
pipeline_app = typer.Typer(help="The Spark pipeline over __remote_log_metadata.", no_args_is_help=True)
app.add_typer(pipeline_app, name="pipeline")


@app.command()
def up(
    data: Annotated[Path | None, typer.Option(help="Data folder (default .ebbline).")] = None,
    database_url: Annotated[str | None, typer.Option(help="sqlite:///FILE or postgresql://…")] = None,
    brokers: Annotated[int | None, typer.Option(help="Number of embedded brokers, 1 to 9 (default 3).")] = None,
    cluster_name: Annotated[str | None, typer.Option(help="What a person types to confirm (default demo).")] = None,
    no_demo: Annotated[bool, typer.Option("--no-demo", help="No demo topic and traffic.")] = False,
    no_ui: Annotated[bool, typer.Option("--no-ui", help="No dashboard.")] = False,
    no_pipeline: Annotated[bool, typer.Option("--no-pipeline", help="No Spark pipeline.")] = False,
) -> None:
    """Run cluster, pipeline and dashboard on this machine."""
    from backend.settings import Settings
    from backend.supervisor.up import run

    given: dict[str, Any] = {
        name: value
        for name, value in {
            "data_dir": data,
            "database_url": database_url,
            "brokers": brokers,
            "cluster_name": cluster_name,
            "demo": False if no_demo else None,
            "ui": False if no_ui else None,
            "pipeline": False if no_pipeline else None,
        }.items()
        if value is not None
    }
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        print(
            f"ebbline: the setting {name} is not usable: {first['msg']} (given: {first['input']!r}).", file=sys.stderr
        )
        raise typer.Exit(2) from None
    raise typer.Exit(run(settings))


@app.command()
def broker(
    config: Annotated[Path, typer.Option(help="A file of Kafka broker properties.")],
) -> None:
    """Run one broker with Kafka property names."""
    from backend.engine.cluster import run_broker

    raise typer.Exit(run_broker(str(config)))


@pipeline_app.command("run")
def pipeline_run() -> None:
    """Run the pipeline; reads the EBBLINE_* environment that `ebbline up` gives its children."""
    from spark.job import main as run_job

    raise typer.Exit(run_job())


def main() -> None:
    """Entry point of the `ebbline` command."""
    app()


if __name__ == "__main__":
    main()
