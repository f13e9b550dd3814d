"""`ebbline lab`: what can be tried on the embedded cluster. Begins it through the API, follows it, shows the result."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from typing import Annotated, Final

import typer

from backend.cli.shared import tables
from backend.cli.shared.api_session import ApiSession, Exit, Json
from backend.cli.shared.options import ApiOptions, console, fail, show_json, with_options
from backend.cli.shared.value_text import printable_text
from backend.control.formatting import in_bytes

PATH: Final = "/v1/lab/bootstrap"
ASK_EVERY_S: Final = 0.5
RUNNING: Final = "running"
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?i?B?)", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}

lab_app = typer.Typer(help="Try things on the embedded cluster.", no_args_is_help=True)


@lab_app.callback()
def lab() -> None:
    """Options of every lab command."""


@lab_app.command()
@with_options
def bootstrap(
    options: ApiOptions,
    size: Annotated[str, typer.Option(help="The leader's local log, like 2GB, 500MB or 64MiB.")] = "2GB",
    tiered: Annotated[str, typer.Option(help="How much of it is in the remote tier too, like 85%.")] = "85%",
) -> None:
    """Race an empty replica with KIP-1023's flag off against one with it on: bytes, seconds, phases.

    Makes a topic, deletes it again, and puts the flag back. Ctrl-C ends the race; it cleans up after itself.
    """
    body = {"size_bytes": size_bytes(size), "tiered_percent": percent(tiered)}
    with options.connected() as opened:
        run = opened.post(PATH, body)["run"]
        try:
            run = _wait_for_end(opened, run)
        except KeyboardInterrupt:
            opened.post(f"{PATH}/cancel", {})
            run = _wait_for_end(opened, run)
    if options.json_:
        show_json(run)
    else:
        for line in result_lines(run):
            console().print(line)
    if run["state"] != "done":
        fail(f"The race is {run['state']}. {printable_text(run['message'] or '')}".strip(), Exit.FAILED)
    if run["message"]:
        print(f"ebbline: {printable_text(run['message'])}", file=sys.stderr)


def size_bytes(text: str) -> int:
    """`2GB`, `500 MB`, `64MiB` as bytes; one line and exit code 2 for anything else."""
    match = _SIZE.fullmatch(text.strip())
    unit = "" if match is None else match[2].lower().removesuffix("b")
    if match is None or unit not in _UNITS:
        fail(f"{text!r} is no size: give one like 2GB, 500MB or 64MiB.", Exit.USAGE)
    return round(float(match[1]) * _UNITS[unit])


def percent(text: str) -> int:
    """`85%` or `85`; one line and exit code 2 for anything else."""
    digits = text.strip().removesuffix("%").strip()
    if not digits.isdecimal() or len(digits) > 3:
        fail(f"{text!r} is no share: give one like 85%.", Exit.USAGE)
    return int(digits)


def _wait_for_end(opened: ApiSession, run: Json) -> Json:
    """Waits for the end; each step, and every tenth of what is produced, is a line on stderr."""
    shown: Json | None = None
    while True:
        for line in progress_lines(shown, run):
            print(line, file=sys.stderr, flush=True)
        if run["state"] != RUNNING:
            return run
        shown = run
        time.sleep(ASK_EVERY_S)
        current = opened.get(PATH)["run"]
        if current is None or current["started_ms"] != run["started_ms"]:
            fail("The backend was started again, and the race is lost; it is cleaned up.", Exit.FAILED)
        run = current


def progress_lines(shown: Json | None, run: Json) -> Iterable[str]:
    """New lines since `shown`: steps that were over before the first request are listed as well."""
    for begun in run["steps"][0 if shown is None else len(shown["steps"]) :]:
        yield f"{printable_text(begun['step'])} …"
    produced = None if shown is None else _tenths(shown)
    if run["state"] == RUNNING and run["step"].startswith("produce") and _tenths(run) != produced:
        yield f"{printable_text(run['step'])} … {10 * _tenths(run)} % of {in_bytes(run['total_bytes'])}"
    if run["state"] != RUNNING:
        yield f"{run['state']}."


def _tenths(run: Json) -> int:
    return int(10 * run["produced_bytes"] // run["total_bytes"])


def result_lines(run: Json) -> Iterable[object]:
    """The result of a race, for people."""
    log = run["leader_log"]
    if log is not None:
        yield (
            f"Leader {run['leader']}: offsets {log['log_start']} to {log['log_end']}, local from"
            f" {log['local_start']} ({in_bytes(log['local_bytes'])}), first not tiered {log['pending_upload']}."
        )
    if run["races"]:
        yield tables.bootstrap_races(run["races"])
    if len(run["races"]) == 2:
        off, on = run["races"]
        yield comparison(off, on)
    for race in run["races"]:
        yield f"Phases of the replica with the flag {'on' if race['flag'] else 'off'}:"
        yield tables.bootstrap_phases(race)


def comparison(off: Json, on: Json) -> str:
    """One sentence that sets the two beside each other."""
    share = 100 * on["copied_bytes"] / off["copied_bytes"] if off["copied_bytes"] else 100
    return (
        f"With the flag on the replica copied {share:.0f} % of the bytes in {on['seconds']:.2f} s instead of"
        f" {off['seconds']:.2f} s, and has {on['log_end'] - on['start_offset']} of"
        f" {off['log_end'] - off['start_offset']} local records."
    )
