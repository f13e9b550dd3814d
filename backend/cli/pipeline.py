"""`ebbline pipeline …`: run it, and look after what it has stored."""

from __future__ import annotations

import typer

from backend.cli.local import DatabaseOption, LocalDataOption, cluster_id_of, local_settings, refuse

pipeline_app = typer.Typer(help="The Spark pipeline over __remote_log_metadata.", no_args_is_help=True)


@pipeline_app.command("run")
def run() -> None:
    """Run the pipeline; reads the EBBLINE_* environment that `ebbline up` gives its children."""
    from spark.job import main as run_job

    raise typer.Exit(run_job())


@pipeline_app.command("rebuild")
def rebuild(data: LocalDataOption = None, database_url: DatabaseOption = None) -> None:
    """Forget the segment ledger; the pipeline then reads __remote_log_metadata from its beginning."""
    from backend.data_folder import DataFolderError
    from backend.store.engine import StoreError
    from spark.lock import Busy
    from spark.rebuild import forget_ledger

    settings = local_settings(data_dir=data, database_url=database_url)
    try:
        events = forget_ledger(settings.data_dir / "spark", settings.database, cluster_id_of(settings))
    except (DataFolderError, StoreError, Busy) as error:
        refuse(error)
    print(f"{events} events are forgotten; the pipeline reads the topic from its beginning at its next start.")
