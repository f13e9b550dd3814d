"""`ebbline plan …`: makes a stored plan of any kind and shows it. Nothing is changed before `ebbline apply`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from backend.cli.plans.confirm import make_plan, plan_lines, show_draft
from backend.cli.shared.api_session import Exit, Json
from backend.cli.shared.options import ApiOptions, console, fail, show_json, with_options

app = typer.Typer(help="Make a plan and show it; nothing is changed before `ebbline apply`.", no_args_is_help=True)

_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_SIZE: Final = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmg]?)b?(?:/s)?$", re.IGNORECASE)
_PARTITION: Final = re.compile(r"^(.+)-(\d+)$")

Where = Annotated[list[str], typer.Argument(help="Topics, or partitions as TOPIC-PARTITION with --partitions.")]
Perhaps = Annotated[list[str] | None, typer.Argument(help="Topics; without any, all that are concerned.")]
Single = Annotated[bool, typer.Option("--partitions", help="The names are partitions, TOPIC-PARTITION.")]
Brokers = Annotated[list[int], typer.Option("--broker", help="Broker id; may be given several times.")]


@dataclass(frozen=True, kw_only=True)
class PlanOptions(ApiOptions):
    """The options of every command that makes a plan."""

    reason: Annotated[str | None, typer.Option(help="Stands in the audit.")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would do; nothing is stored.")] = False


@dataclass(frozen=True, kw_only=True)
class ReassignOptions(PlanOptions):
    """The options of a plan that copies replicas."""

    throttle: Annotated[str | None, typer.Option(help="Limit of each broker in bytes a second, e.g. 50MB.")] = None
    unthrottled: Annotated[bool, typer.Option("--unthrottled", help="No limit.")] = False
    at_once: Annotated[int, typer.Option(help="Partitions that move at the same time.")] = 20


def size(text: str | None) -> int | None:
    """`50MB`, `800k`, `1000000` as bytes; ends the command for anything else."""
    if text is None:
        return None
    match = _SIZE.match(text.strip())
    if match is None:
        fail(f"{text!r} is no size: give one like 50MB.", Exit.USAGE)
    return round(float(match[1]) * _UNITS[match[2].lower()])


def selection(names: list[str] | None, *, single: bool) -> Json:
    """Topics or partitions as the API takes them."""
    if not single:
        return {"topics": names or []}
    return {"partitions": [partition_name(name) for name in names or []]}


def partition_name(name: str) -> Json:
    """`orders-3`; ends the command for anything else."""
    match = _PARTITION.match(name)
    if match is None:
        fail(f"{name!r} is no partition: give TOPIC-PARTITION, such as orders-3.", Exit.USAGE)
    return {"topic": match[1], "partition": int(match[2])}


def settings(pairs: list[str], removed: list[str]) -> dict[str, str | None]:
    """`name=value …` and names to remove; ends the command for anything else."""
    values: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            fail(f"{pair!r} is no setting: give NAME=VALUE.", Exit.USAGE)
        values[name] = value
    return values | dict.fromkeys(removed)


def _make(options: PlanOptions, kind: str, inputs: Json) -> None:
    with options.connected() as opened:
        if options.dry_run:
            show_draft(opened, kind, inputs, json_=options.json_)
            return
        plan = make_plan(opened, kind, inputs, reason=options.reason, json_=options.json_)
    if options.json_:
        show_json(plan)
    else:
        lines = [f"Plan {plan['id']} is stored. Nothing has been changed.", *plan_lines(plan)]
        console().print("\n".join([*lines, f"Carry it out with: ebbline apply {plan['id']}"]))


def _reassign(options: ReassignOptions, inputs: Json) -> None:
    more: Json = {"throttle_bytes_per_s": size(options.throttle), "unthrottled": options.unthrottled}
    _make(options, "reassign", inputs | more | {"at_once": options.at_once})


@app.command()
@with_options
def add(options: ReassignOptions, where: Where, broker: Brokers, partitions: Single = False) -> None:
    """Add a replica on each given broker."""
    _reassign(options, {"action": "add", "brokers": broker, **selection(where, single=partitions)})


@app.command()
@with_options
def remove(options: ReassignOptions, where: Where, broker: Brokers, partitions: Single = False) -> None:
    """Remove the replicas on the given brokers."""
    _reassign(options, {"action": "remove", "brokers": broker, **selection(where, single=partitions)})


@app.command()
@with_options
def move(
    options: ReassignOptions,
    where: Where,
    source: Annotated[int, typer.Option("--from", help="Broker id.")],
    to: Annotated[int, typer.Option("--to", help="Broker id.")],
    partitions: Single = False,
) -> None:
    """Move replicas from one broker to another."""
    _reassign(options, {"action": "move", "brokers": [source, to], **selection(where, single=partitions)})


@app.command("replication-factor")
@with_options
def replication_factor(
    options: ReassignOptions,
    factor: Annotated[int, typer.Argument(help="Replicas of each partition.")],
    where: Where,
    partitions: Single = False,
) -> None:
    """Change how many replicas topics have."""
    _reassign(options, {"action": "replication_factor", "factor": factor, **selection(where, single=partitions)})


@app.command()
@with_options
def drain(
    options: ReassignOptions,
    broker: Annotated[list[int], typer.Argument(help="Broker ids that are to hold nothing.")],
    topic: Annotated[list[str] | None, typer.Option(help="Only of this topic; may be given several times.")] = None,
) -> None:
    """Move everything away from brokers."""
    _reassign(options, {"action": "drain", "brokers": broker, "topics": topic or []})


@app.command("spread-leaders")
@with_options
def spread_leaders(options: PlanOptions, where: Perhaps = None) -> None:
    """Give every broker its share of the leaders; replicas stay where they are."""
    _make(options, "reassign", {"action": "spread_leaders", "topics": where or [], "elect": True})


@app.command("swap-leaders")
@with_options
def swap_leaders(
    options: PlanOptions,
    between: Annotated[tuple[int, int], typer.Option(help="The two brokers, for example --between 1 2.")],
    where: Perhaps = None,
) -> None:
    """Two brokers change places as leaders of what both have; nothing is copied."""
    wish = {"action": "swap_leaders", "brokers": list(between), "topics": where or [], "elect": True}
    _make(options, "reassign", wish)


@app.command()
@with_options
def assign(
    options: ReassignOptions,
    file: Annotated[Path, typer.Argument(help="A file of kafka-reassign-partitions.sh, or of `ebbline export`.")],
) -> None:
    """Exactly the replica lists of a file."""
    try:
        listed = json.loads(file.read_text())["partitions"]
        assignments = [{name: part[name] for name in ("topic", "partition", "replicas")} for part in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{file} cannot be used ({type(error).__name__}): give a reassignment file in Kafka's format.", Exit.USAGE)
    _reassign(options, {"assignments": assignments})


@app.command()
@with_options
def elect(options: PlanOptions, where: Perhaps = None, partitions: Single = False) -> None:
    """Make the first replica of each list the leader."""
    _make(options, "elect", selection(where, single=partitions))


@app.command("delete-records")
@with_options
def delete_records(
    options: PlanOptions,
    below: Annotated[list[str], typer.Argument(help="TOPIC-PARTITION=OFFSET; everything below goes, for good.")],
) -> None:
    """Delete the beginning of partitions, local and remote."""
    partitions = []
    for text in below:
        name, _, offset = text.rpartition("=")
        if not offset.isdecimal():
            fail(f"{text!r} names no offset: give TOPIC-PARTITION=OFFSET.", Exit.USAGE)
        partitions.append(partition_name(name) | {"offset": int(offset)})
    _make(options, "delete_records", {"partitions": partitions})


@app.command()
@with_options
def topic(
    options: PlanOptions,
    name: Annotated[str, typer.Argument(help="Topic.")],
    pairs: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE…", help="Settings.")] = None,
    delete: Annotated[list[str] | None, typer.Option(help="A setting to remove; may be given several times.")] = None,
) -> None:
    """Change settings of a topic, those of tiering included."""
    _make(options, "topic_config", {"topic": name, "settings": settings(pairs or [], delete or [])})


@app.command()
@with_options
def brokers(
    options: PlanOptions,
    pairs: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE…", help="Settings.")] = None,
    delete: Annotated[list[str] | None, typer.Option(help="A setting to remove; may be given several times.")] = None,
    broker: Annotated[int | None, typer.Option(help="Only on this broker; else the cluster default.")] = None,
) -> None:
    """Change settings of brokers."""
    scope: Json = {} if broker is None else {"scope": "broker", "broker_id": broker}
    _make(options, "broker_config", {"settings": settings(pairs or [], delete or []), **scope})


@app.command("clear-throttle")
@with_options
def clear_throttle(
    options: PlanOptions,
    topic: Annotated[list[str] | None, typer.Option(help="Topic; may be given several times.")] = None,
    broker: Annotated[list[int] | None, typer.Option(help="Broker id; may be given several times.")] = None,
    cluster_default: Annotated[bool, typer.Option("--cluster-default", help="What is set for all brokers.")] = False,
) -> None:
    """Remove replication limits that were left behind; without options, all."""
    where = {"topics": topic or [], "brokers": broker or [], "cluster_default": cluster_default}
    _make(options, "clear_throttle", where)
