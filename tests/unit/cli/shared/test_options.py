"""Shared options become a command's own, in the order in which its help shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from backend.cli.local.local_settings import DatabaseReportOptions
from backend.cli.plans.plan_commands import PlanOptions, ReassignOptions
from backend.cli.shared.options import DATA_DEFAULT, ApiOptions, with_options


def options_of(app: typer.Typer) -> list[str]:
    return [option for parameter in typer.main.get_command(app).params for option in parameter.opts]


def test_options_stand_after_the_commands_own_and_those_of_a_base_after_those_of_the_class() -> None:
    app = typer.Typer(add_completion=False)

    @app.command()
    @with_options
    def command(options: ReassignOptions, where: Annotated[str, typer.Argument()], mine: bool = False) -> None:
        """Does nothing."""

    own, shared = ["where", "--mine"], ["--api", "--token-file", "--data", "--json"]
    plan = ["--throttle", "--unthrottled", "--at-once", "--reason", "--dry-run"]
    assert options_of(app) == [*own, *plan, *shared]


def test_keyword_only_parameters_of_a_command_stand_after_the_options() -> None:
    app = typer.Typer(add_completion=False)

    @app.command()
    @with_options
    def command(options: DatabaseReportOptions, first: int = 0, *, last: int = 0) -> None:
        """Does nothing."""

    assert options_of(app) == ["--first", "--data", "--database-url", "--json", "--last"]


def test_a_command_gets_its_options_as_one_value(tmp_path: Path) -> None:
    app, seen = typer.Typer(), []

    @app.command()
    @with_options
    def command(options: PlanOptions, number: int) -> None:
        seen.append((options, number))

    words = ["7", "--reason", "why", "--json", "--data", str(tmp_path)]
    assert CliRunner().invoke(app, words, env={"EBBLINE_DATA_DIR": "elsewhere"}).exit_code == 0
    assert seen == [(PlanOptions(reason="why", json_=True, data=tmp_path), 7)]


def test_an_option_that_is_not_given_has_its_default() -> None:
    app, seen = typer.Typer(), []

    @app.command()
    @with_options
    def command(options: ApiOptions) -> None:
        seen.append(options)

    assert CliRunner().invoke(app, [], env={"EBBLINE_DATA_DIR": None}).exit_code == 0
    assert seen == [ApiOptions(api=None, token_file=None, data=DATA_DEFAULT, json_=False)]
