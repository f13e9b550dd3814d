"""Parts of all commands that ask the API: their options, how a failure ends them, and where their output goes."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer
from rich.console import Console

from backend.cli.shared.api_session import ApiError, ApiSession, Exit, find_api_access
from backend.cli.shared.value_text import printable_text

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


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How a command reaches the API. `with_options` makes an option of the command of every field."""

    api: ApiOption = None
    token_file: TokenOption = None
    data: DataOption = DATA_DEFAULT

    @contextmanager
    def connected(self) -> Iterator[ApiSession]:
        """The API; a failure is one line on stderr and the command's exit code."""
        try:
            with ApiSession(find_api_access(self.api, self.token_file, self.data)) as opened:
                yield opened
        except ApiError as error:
            fail(str(error), error.code)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """In which form a command answers."""

    json_: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class ApiOptions(ConnectionOptions, OutputOptions):
    """The options of a command that asks the API and shows its answer."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: its first parameter, a dataclass of options, becomes one option for each field.

    They stand after the command's positional parameters and before its keyword-only ones: those of the dataclass
    itself, then those of its bases.
    """
    given, *own = inspect.signature(command, eval_str=True).parameters.values()
    kind = given.annotation
    defaults = {field.name: field.default for field in fields(kind)}
    shared = []
    kw_only = inspect.Parameter.KEYWORD_ONLY
    for owner in kind.__mro__:
        hints = get_type_hints(owner, include_extras=True)
        for name in vars(owner).get("__annotations__", {}):
            shared.append(inspect.Parameter(name, kw_only, default=defaults[name], annotation=hints[name]))

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        options = kind(**{name: arguments.pop(name, default) for name, default in defaults.items()})
        command(options, **arguments)

    before = [parameter.replace(kind=kw_only) for parameter in own if parameter.kind is not kw_only]
    parameters = [*before, *shared, *(parameter for parameter in own if parameter.kind is kw_only)]
    shown: Any = run
    shown.__signature__ = inspect.Signature(parameters, return_annotation=None)
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del shown.__wrapped__
    return run


def fail(sentence: str, code: Exit) -> NoReturn:
    """One line on stderr, and the end."""
    print(f"ebbline: {printable_text(sentence)}", file=sys.stderr)
    raise typer.Exit(code) from None


def console() -> Console:
    """Standard output: as wide as the terminal, or wide for a pipe; markup of others' texts is not read."""
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, markup=False, emoji=False, highlight=False)


def show_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def end(*, attention: bool) -> None:
    """Exit code 1 when the answer is bad news."""
    if attention:
        raise typer.Exit(Exit.ATTENTION)
