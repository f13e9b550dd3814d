"""Parts of commands that work on this machine's files and database, not on the API: settings, and how they fail."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from backend.cli.shared.options import OutputOptions

if TYPE_CHECKING:
    from backend.data_folder.data_folder import ClusterIdentity
    from backend.settings.settings import Settings

REFUSED = 2
LocalDataOption = Annotated[Path | None, typer.Option("--data", help="Data folder (default .ebbline).")]


@dataclass(frozen=True, kw_only=True)
class DatabaseOptions:
    """The data folder and the database that a command works on."""

    data: LocalDataOption = None
    database_url: Annotated[str | None, typer.Option("--database-url", help="sqlite:///FILE or postgresql://…")] = None

    def settings(self) -> Settings:
        """As `settings_beside_up` has them."""
        return settings_beside_up(data_dir=self.data, database_url=self.database_url)


@dataclass(frozen=True, kw_only=True)
class DatabaseReportOptions(DatabaseOptions, OutputOptions):
    """The options of a command that shows what the database has."""


def local_settings(**given: Any) -> Settings:
    """The settings with these options, None for one that was not given; one line and exit code 2 if unusable."""
    from backend.settings.settings import Settings

    with _settings_sentences():
        return Settings(**_without_none(given))


def settings_beside_up(**given: Any) -> Settings:
    """As `local_settings`, with what the folder's `ebbline up` runs with: database, ports, remote tier, cluster."""
    from backend.cli.shared.beside_up import read_beside_up

    with _settings_sentences():
        settings = read_beside_up(**_without_none(given))
    if settings.database_url is None:
        from backend.data_folder.data_folder import DataFolder

        settings.database_url = DataFolder(settings.data_dir).noted_database()
    return settings


def remote_location(settings: Settings) -> str | None:
    """The remote tier of the folder's `ebbline up`; None: ``remote`` in the data folder.

    Ends the command with one line when its location was not kept, and the settings name none or another one.
    """
    from backend.runtime.redact import redact_url

    with _settings_sentences():
        shown = settings.read_kept(settings.data_dir).running_left_out.get("remote_location")
    location = settings.remote_location
    named = "remote_location" in settings.read_variables()
    if shown is not None and not named and (location is None or redact_url(location) != shown):
        refuse(
            f"The remote tier of {settings.data_dir} is at {shown}, and its key is not kept: set"
            " EBBLINE_REMOTE_LOCATION as for `ebbline up`, or name the place with --remote."
        )
    return location


def _without_none(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


@contextmanager
def _settings_sentences() -> Iterator[None]:
    """Settings that cannot be used end the command with one line and exit code 2."""
    from pydantic import ValidationError

    from backend.settings.kept_settings import KeptSettingsError
    from backend.settings.settings import describe_invalid

    try:
        yield
        return
    except ValidationError as error:
        print(f"ebbline: {describe_invalid(error)}", file=sys.stderr)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        print(f"ebbline: ebbline.toml in the data folder cannot be read: {error}. Correct it.", file=sys.stderr)
    except KeptSettingsError as error:
        print(f"ebbline: {error}", file=sys.stderr)
    raise typer.Exit(REFUSED)


def identity_of(settings: Settings) -> ClusterIdentity:
    """The cluster that owns the data folder. Raises DataFolderError for one that holds no cluster."""
    from backend.data_folder.data_folder import DataFolder, DataFolderError, IdentityLost
    from backend.data_folder.lost_identity import way_out

    folder = DataFolder(settings.data_dir)
    try:
        identity = folder.read_identity()
    except IdentityLost as error:
        raise DataFolderError(f"{error}: {way_out(folder.root)}") from error
    if identity is None:
        raise DataFolderError(f"The folder {settings.data_dir} holds no cluster: give its folder with --data.")
    return identity


def refuse(error: Exception | str) -> NoReturn:
    """One line on stderr, and exit code 2."""
    from backend.runtime.redact import printable

    print(f"ebbline: {printable(str(error))}", file=sys.stderr)
    raise typer.Exit(REFUSED) from None
