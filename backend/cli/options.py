"""What all commands that ask the API share: their options, how a failure ends them, and where their output goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from backend.cli.api import Api, ApiError, Exit, find_place
from backend.cli.words import plain

ApiOption = Annotated[
    str | None, typer.Option("--api", help="Address of the API (default $EBBLINE_API_URL, else this machine's).")
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the token (default $EBBLINE_TOKEN_FILE, else the data folder's)."),
]
DataOption = Annotated[
    Path, typer.Option("--data", envvar="EBBLINE_DATA_DIR", help="Data folder of `ebbline up` on this machine.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The API's answer as JSON, for scripts.")]
DATA_DEFAULT = Path(".ebbline")
# A pipe has no width; a line of a table must not be folded for `grep` because of that.
PIPE_COLUMNS = 250


@contextmanager
def calls(api: str | None, token_file: Path | None, data: Path) -> Iterator[Api]:
    """The API; a failure is one line on stderr and the command's exit code."""
    try:
        with Api(find_place(api, token_file, data)) as opened:
            yield opened
    except ApiError as error:
        fail(str(error), error.code)


def fail(sentence: str, code: Exit) -> NoReturn:
    """One line on stderr, and the end."""
    print(f"ebbline: {plain(sentence)}", file=sys.stderr)
    raise typer.Exit(code) from None


def console() -> Console:
    """Standard output: as wide as the terminal, or wide for a pipe; markup of others' texts is not read."""
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, markup=False, emoji=False, highlight=False)


def show_json(answer: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(answer, indent=2, ensure_ascii=False))


def end(*, attention: bool) -> None:
    """Exit code 1 when the answer is bad news."""
    if attention:
        raise typer.Exit(Exit.ATTENTION)
