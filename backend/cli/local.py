"""What commands share that work on this machine's files and database, not on the API: settings, and how they fail."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from backend.data_folder import ClusterIdentity
    from backend.settings import Settings

LocalDataOption = Annotated[Path | None, typer.Option("--data", help="Data folder (default .ebbline).")]
DatabaseOption = Annotated[str | None, typer.Option("--database-url", help="sqlite:///FILE or postgresql://…")]
REFUSED = 2


def settings_beside_up(**given: Any) -> Settings:
    """As `local_settings`, with the database that `ebbline up` noted in the folder unless another is named."""
    found = local_settings(**given)
    if found.database_url is None:
        from backend.data_folder import DataFolder

        found.database_url = DataFolder(found.data_dir).noted_database()
    return found


def local_settings(**given: Any) -> Settings:
    """The settings with these options, None for one that was not given; one line and exit code 2 if unusable."""
    from pydantic import ValidationError

    from backend.settings import Settings, describe_invalid

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        print(f"ebbline: {describe_invalid(error)}", file=sys.stderr)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        print(f"ebbline: ebbline.toml in the data folder cannot be read: {error}. Correct it.", file=sys.stderr)
    raise typer.Exit(REFUSED)


def identity_of(settings: Settings) -> ClusterIdentity:
    """Whose data folder it is. Raises DataFolderError for one that holds no cluster."""
    from backend.data_folder import DataFolder, DataFolderError, IdentityLost
    from backend.lost_identity import way_out

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
    from backend.redact import printable

    print(f"ebbline: {printable(str(error))}", file=sys.stderr)
    raise typer.Exit(REFUSED) from None
