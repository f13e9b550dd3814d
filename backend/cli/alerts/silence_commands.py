"""Commands that take a finding over or keep it silent for a while: acknowledge, mute, unmute."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from backend.cli.alerts.times import parse_minutes
from backend.cli.shared.api_session import PAGE, ApiError, ApiSession, Exit
from backend.cli.shared.options import ApiOptions, fail, show_json, with_options
from backend.cli.shared.value_text import moment, printable_text

FindingArgument = Annotated[
    str, typer.Argument(metavar="ID|SLUG", help="The number of a finding, or its rule, e.g. copy-slow.")
]
ObjectArgument = Annotated[
    str | None, typer.Argument(metavar="OBJECT", help="With a rule: what it is about, e.g. orders-3.")
]
ReasonOption = Annotated[str | None, typer.Option(help="Why; it stands in the audit.")]
ForOption = Annotated[str, typer.Option("--for", help="How long: 90m, 2h, 1d; 30d at most.")]


@with_options
def mute(
    options: ApiOptions,
    finding: FindingArgument,
    object_: ObjectArgument = None,
    *,
    for_: ForOption,
    reason: ReasonOption = None,
) -> None:
    """Keep a finding silent for a while, also when it closes and opens again."""
    minutes = minutes_of(for_)
    with options.connected() as opened:
        muted = _change(opened, finding, object_, "mute", {"minutes": minutes, "reason": reason})
    if options.json_:
        show_json(muted)
    else:
        until = moment(muted["finding"]["muted_until_ms"])
        print(f"{_named(muted)} is muted until {until} UTC; one that is open then is sent then.")


@with_options
def unmute(
    options: ApiOptions, finding: FindingArgument, object_: ObjectArgument = None, *, reason: ReasonOption = None
) -> None:
    """End the silence of a finding."""
    with options.connected() as opened:
        changed = _change(opened, finding, object_, "mute", {"minutes": 0, "reason": reason})
    if options.json_:
        show_json(changed)
    else:
        print(f"{_named(changed)} is not muted any more.")


@with_options
def acknowledge(
    options: ApiOptions,
    finding: Annotated[int, typer.Argument(metavar="ID", min=1, help="The number of an open finding.")],
    *,
    reason: ReasonOption = None,
) -> None:
    """Say that you look after an open finding."""
    with options.connected() as opened:
        taken = opened.post(f"/v1/findings/{finding}/acknowledge", {"reason": reason})
    if options.json_:
        show_json(taken)
    else:
        print(f"{_named(taken)} is looked after by {printable_text(taken['finding']['acknowledged_by'])}.")


def minutes_of(text: str) -> int:
    """The minutes of `--for`; ends the command when it is no duration."""
    minutes = parse_minutes(text)
    if minutes is None:
        fail(f"{text!r} is no time to be silent: give one like 90m, 2h or 1d, 30d at most.", Exit.USAGE)
    return minutes


def _change(opened: ApiSession, finding: str, object_: str | None, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    return opened.post(f"/v1/findings/{_finding_id(opened, finding, object_)}/{verb}", body)


def _finding_id(opened: ApiSession, finding: str, object_: str | None) -> int:
    """The number that is given, or of the newest finding of a rule about an object. Raises ApiError."""
    if object_ is None:
        if not (finding.isascii() and finding.isdigit()):
            text = f"{finding!r} is no number of a finding: give one of `ebbline findings`, or a rule and an object."
            raise ApiError(text, Exit.USAGE)
        return int(finding)
    before: int | None = None
    while True:
        page = opened.get("/v1/findings", state="all", slug=finding, limit=PAGE, before_id=before)
        for item in page["items"]:
            if item["object"] == object_:
                return int(item["id"])
        before = page["next_before_id"]
        if before is None:
            text = (
                f"There was no finding {finding} of {object_} yet: to keep one silent before it opens, use"
                " `ebbline maintenance add`."
            )
            raise ApiError(text, Exit.NOT_FOUND)


def _named(response: dict[str, Any]) -> str:
    finding = response["finding"]
    return printable_text(f"Finding {finding['id']}, {finding['slug']} of {finding['object']},")
