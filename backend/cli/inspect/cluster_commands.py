"""Commands that show a cluster as the API has it: status, partitions, describe, segments, config."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from backend.cli.shared import tables, value_text
from backend.cli.shared.api_session import ApiSession, Exit, Json
from backend.cli.shared.open_findings import not_muted, open_findings
from backend.cli.shared.options import ApiOptions, console, end, fail, show_json, with_options
from backend.cli.shared.verdict import blind_lines, conclusion, needs_attention
from backend.store.blind_spots import OF_A_SILENT_CLUSTER

PartitionArgument = Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="For example orders-3.")]


class ResourceType(StrEnum):
    """The owner of settings."""

    broker = "broker"
    topic = "topic"


@with_options
def status(options: ApiOptions) -> None:
    """Is anything wrong? The cluster, its brokers, what needs attention.

    Ends with 1 when something critical does, or when something is not seen."""
    with options.connected() as opened:
        cluster, brokers = opened.get("/v1/cluster"), opened.get("/v1/brokers")["items"]
        findings = not_muted(open_findings(opened), cluster["now_ms"])
    if options.json_:
        show_json({"cluster": cluster, "brokers": brokers, "findings": findings})
    else:
        _print_status(cluster, brokers, findings)
    end(attention=needs_attention(cluster, findings))


def _print_status(cluster: Json, brokers: list[Json], findings: list[Json]) -> None:
    out, totals = console(), cluster["totals"]
    out.print(
        Text(
            f"Cluster {value_text.printable_text(cluster['name'])} ({cluster['cluster_id']}, {cluster['kind']})", "bold"
        )
    )
    if not cluster["answers"]:
        since = value_text.age(cluster["away_since_ms"], cluster["now_ms"])
        out.print(
            Text(
                f"It does not answer for {since}. {value_text.printable_text(cluster['away_reason'] or '')}", "bold red"
            )
        )
    if totals is not None:
        pending = value_text.size(totals["pending_bytes"])
        out.print(
            f"{value_text.plural(totals['partitions'], 'partition')}, {totals['tiered_partitions']} tiered · "
            f"{value_text.plural(totals['replicas_not_in_sync'], 'replica')} not in sync · {pending} not uploaded · "
            f"local {value_text.size(totals['local_log_bytes'])} · remote {value_text.size(totals['remote_log_bytes'])}"
        )
    out.print()
    out.print(tables.broker_list(brokers, cluster["now_ms"]))
    out.print()
    out.print(tables.processes(cluster["processes"], without=cluster["away_reason"] or ""))
    out.print()
    # Of a cluster that does not answer the first line says it.
    for line in blind_lines(cluster, without=() if cluster["answers"] else OF_A_SILENT_CLUSTER):
        out.print(line)
    own = [finding for finding in findings if finding["cause_slug"] is None]
    if own:
        out.print(tables.findings(own, cluster["now_ms"]))
    out.print(conclusion(cluster, own))


@with_options
def partitions(
    options: ApiOptions,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also partitions of topics that are not tiered.")] = False,
) -> None:
    """Where each partition's data lives: offsets of its leader, local and remote bytes."""
    with options.connected() as opened:
        response = opened.get("/v1/partitions", tiered=not everything, topic=topic, limit=20_000)
    if options.json_:
        show_json(response)
    elif response["items"]:
        console().print(tables.partitions(response["items"]))
    else:
        print("No such partition." + ("" if everything else " --all shows those that are not tiered, too."))


@with_options
def describe(options: ApiOptions, topic_partition: PartitionArgument) -> None:
    """One partition with its replicas: which offsets are where, who is in sync, which lost disks it survives."""
    response = _partition(options, topic_partition)
    if options.json_:
        show_json(response)
        return
    out, row = console(), response["partition"]
    out.print(tables.partitions([row]))
    if row["error"]:
        out.print(value_text.printable_text(row["error"]), style="yellow")
    out.print(value_text.committed_end(row["high_watermark"], row["last_stable_offset"]))
    out.print()
    out.print(tables.replicas(response["replicas"], _now_ms()))
    for replica in response["replicas"]:
        if replica["error"]:
            out.print(Text(value_text.printable_text(replica["error"]), style="yellow"))
    out.print()
    out.print(Text(value_text.printable_text(value_text.who_may_lead(row["isr"], response["eligible_leaders"]))))
    out.print(Text(value_text.printable_text(response["next_leader"])))
    for sentence in response["durability"]["sentences"]:
        out.print(Text(value_text.printable_text(sentence)))
    out.print(
        f"{value_text.plural(len(response['segments']), 'remote segment')} in the ledger; epoch {row['leader_epoch']}."
    )


@with_options
def segments(options: ApiOptions, topic_partition: PartitionArgument) -> None:
    """The remote segments of a partition, as the ledger has them."""
    response = _partition(options, topic_partition)
    if options.json_:
        show_json({"items": response["segments"]})
    elif response["segments"]:
        console().print(tables.segments(response["segments"], _now_ms()))
    else:
        print(f"The ledger has no segment of {value_text.printable_text(topic_partition)}.")


@with_options
def config(
    options: ApiOptions,
    name: Annotated[str | None, typer.Argument(help="Only this setting.")] = None,
    resource_type: Annotated[ResourceType, typer.Option("--type", help="Whose settings.")] = ResourceType.broker,
    resource: Annotated[str | None, typer.Option(help="Only of this broker id or topic.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what stands at Kafka's default.")] = False,
) -> None:
    """Settings in effect, and where each is set."""
    with options.connected() as opened:
        settings = _settings(opened, resource_type=resource_type.value, resource=resource, name=name)
    shown = [r for r in settings if everything or name or r["source"] != "DEFAULT_CONFIG"]
    if options.json_:
        show_json({"items": shown})
    elif shown:
        console().print(tables.config(shown))
    else:
        print("No such setting." + ("" if everything or name else " --all shows what stands at its default, too."))


def parse_partition(text: str) -> tuple[str, int] | None:
    """`orders-eu-3` as (orders-eu, 3); None when it is no topic and partition."""
    topic, dash, number = text.rpartition("-")
    if not (topic and dash and number.isascii() and number.isdigit() and len(number) <= 10):
        return None
    return topic, int(number)


def _partition(options: ApiOptions, text: str) -> Json:
    parsed = parse_partition(text)
    if parsed is None:
        fail(f"{text!r} is no TOPIC-PARTITION: give the topic, a dash and the number, like orders-3.", Exit.USAGE)
    with options.connected() as opened:
        return opened.get(f"/v1/partitions/{quote(parsed[0], safe='')}/{parsed[1]}")


def _settings(opened: ApiSession, **which: str | None) -> list[Json]:
    """All of them, page by page."""
    settings: list[Json] = []
    while True:
        page = opened.get("/v1/config", **which, offset=len(settings))
        settings += page["items"]
        if not page["items"] or len(settings) >= page["total"]:
            return settings


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
