"""A database as the observer and the pipeline would leave it: six brokers, seven topics, and some trouble.

Deterministic but for ``now_ms``: all times are relative to it, because pages show ages.
"""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, Final

from backend.store import tables as t
from backend.store.connection.database import writing
from backend.store.queries.partitions import OFFSETS_AND_SIZES
from tests.databases import opened_engine

CLUSTER_ID: Final = "0J8z8jVtQb2nLrv6y1Yb4g"
CLUSTER_NAME: Final = "prod-eu"
FLAG: Final = "follower.fetch.last.tiered.offset.enable"
INTERVAL_MS: Final = 2_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
Row = dict[str, Any]
# topic: partitions, bytes a record, local GB, remote GB, pending GB (of the worst; the others fall off)
TOPICS: Final[dict[str, tuple[int, int, float, float, float]]] = {
    "telemetry": (192, 1136, 34.0, 876.0, 0.22),
    "clickstream": (96, 820, 34.0, 2400.0, 0.5),
    "orders": (32, 7436, 31.0, 421.0, 2.1),
    "sessions": (48, 640, 25.0, 260.0, 1.4),
    "payments": (16, 910, 18.0, 95.0, 0.61),
    "inventory": (16, 420, 8.0, 61.0, 0.41),
    "audit-log": (12, 1500, 5.0, 33.0, 0.22),
}
WORST: Final = {
    ("telemetry", 143): 64.2,
    ("telemetry", 88): 49.0,
    ("clickstream", 31): 9.6,
    ("clickstream", 12): 6.2,
    ("orders", 7): 2.1,
}
LOCAL_RETENTION_BYTES: Final = 12_000_000_000
BROKERS: Final = 6


def uuid_text(number: int) -> str:
    """A Kafka UUID."""
    return urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")


def seed(
    url: str,
    now_ms: int,
    *,
    trouble: bool = True,
    topics: Sequence[str] = tuple(TOPICS),
    interval_ms: int = INTERVAL_MS,
) -> None:
    """Fills a migrated database. Without ``trouble`` everything is in order.

    After three times ``interval_ms`` without news every page calls its data stale.
    """
    chance = random.Random(7)
    with opened_engine(url) as engine, writing(engine) as connection:
        for table in reversed(t.metadata.sorted_tables):
            connection.execute(table.delete())

        def insert(table: Any, rows: list[Row]) -> None:
            for start in range(0, len(rows), 500):
                part = [{"cluster_id": CLUSTER_ID, **row} for row in rows[start : start + 500]]
                connection.execute(table.insert(), part)

        insert(t.cluster, [_cluster(now_ms, interval_ms)])
        insert(t.process_status, _processes(now_ms, interval_ms))
        insert(t.broker, _brokers(now_ms, trouble))
        insert(t.topic, _topics(now_ms, topics))
        parts = [
            _partition(name, index, now_ms, chance, trouble) for name in topics for index in range(TOPICS[name][0])
        ]
        insert(t.partition_current, parts)
        insert(t.replica_current, [row for part in parts for row in _replicas(part, now_ms, trouble)])
        detailed = [part for part in parts if (part["topic"], part["partition"]) in WORST or part["partition"] == 0]
        segments = [row for part in detailed for row in _segments(part, now_ms, trouble)]
        insert(t.remote_partition, [_remote(part, now_ms, segments) for part in parts])
        insert(t.segment, segments)
        insert(t.partition_sample, [row for part in detailed for row in _history(part, now_ms)])
        insert(t.cluster_sample, _totals(parts, now_ms, trouble))
        insert(t.config_value, _configs(now_ms, trouble))
        if trouble:
            insert(t.finding, [row for row in _findings(now_ms) if row["topic"] in topics])
            insert(t.operation, _operations(now_ms))
            insert(t.audit, _audit(now_ms))


def _cluster(now_ms: int, interval_ms: int) -> Row:
    return {
        "name": CLUSTER_NAME,
        "kind": "embedded",
        "bootstrap_servers": "127.0.0.1:19092",
        "controller_id": 1,
        "features": {"metadata.version": 29},
        "first_seen_ms": now_ms - 30 * HOUR_MS,
        "seen_ms": now_ms,
        "sample_interval_ms": interval_ms,
    }


def _processes(now_ms: int, interval_ms: int) -> list[Row]:
    common = {"pid": 4711, "started_ms": now_ms - 30 * HOUR_MS, "updated_ms": now_ms, "interval_ms": interval_ms}
    return [
        {**common, "process": "backend", "state": "running", "message": None, "detail": None, "data_version": 0},
        {
            **common,
            "process": "observer",
            "state": "running",
            "message": None,
            "detail": {"checked_ms": now_ms - 150_000},
            "data_version": 100,
        },
        {
            **common,
            "process": "pipeline",
            "state": "running",
            "message": None,
            "detail": {"lag_records": 0, "records": 912},
            "data_version": 40,
        },
    ]


def set_aside(now_ms: int) -> list[Row]:
    """Replicas that broker 2 keeps: a stray, and a damaged replica that was copied again."""
    stray = "metadata has no replica of it on this broker"
    return [
        {"name": f"legacy-0.{'a1' * 16}-stray", "size_bytes": 4_200_000_000, "since_ms": now_ms - 50 * HOUR_MS}
        | {"reason": stray},
        {"name": f"orders-7.{'c3' * 16}-stray", "size_bytes": 12_000_000, "since_ms": now_ms - 3 * HOUR_MS}
        | {"reason": "/data/orders-7/00000000000004310020.log is corrupt at byte 4096"},
    ]


def _brokers(now_ms: int, trouble: bool) -> list[Row]:
    kept = set_aside(now_ms) if trouble else []
    sizes = {"set_aside_count": len(kept), "set_aside_bytes": sum(replica["size_bytes"] for replica in kept)}
    return [
        {
            "broker_id": number,
            "host": "127.0.0.1",
            "port": 19091 + number,
            "rack": f"eu-{(number - 1) % 3 + 1}",
            "fenced": False,
            "reachable": True,
            "error": None,
            "log_dirs": [
                {"path": "/data", "total_bytes": 3_000_000_000_000, "usable_bytes": 1_080_000_000_000, "error": None}
                | ({"set_aside": kept, **sizes} if number == 2 else {})
            ],
            "seen_ms": now_ms,
            "sampled_ms": now_ms,
        }
        for number in range(1, BROKERS + 1)
    ]


def _topics(now_ms: int, names: Sequence[str]) -> list[Row]:
    config = {
        "remote.storage.enable": "true",
        "cleanup.policy": "delete",
        "local.retention.bytes": str(LOCAL_RETENTION_BYTES),
        "local.retention.ms": str(4 * HOUR_MS),
        "retention.bytes": "-1",
        "retention.ms": str(30 * 24 * HOUR_MS),
        "segment.bytes": "1073741824",
        "remote.log.copy.disable": "false",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    }
    rows = [
        {"topic": name, "partition_count": TOPICS[name][0], "internal": False, "tiered": True, "config": config}
        for name in names
    ]
    rows.append(
        {
            "topic": "__remote_log_metadata",
            "partition_count": 50,
            "internal": True,
            "tiered": False,
            "config": {"remote.storage.enable": "false", "cleanup.policy": "delete"},
        }
    )
    common = {"replication_factor": 3, "sampled_ms": now_ms}
    return [{**row, **common, "topic_id": uuid_text(100 + number)} for number, row in enumerate(rows)]


def _partition(topic: str, index: int, now_ms: int, chance: random.Random, trouble: bool) -> Row:
    _, record, local_gb, remote_gb, pending_gb = TOPICS[topic]
    share = 0.35 + 0.65 * chance.random()
    pending = round(pending_gb * 1e9 * share * 0.45 / record)
    if trouble and (topic, index) in WORST:
        pending = round(WORST[topic, index] * 1e9 / record)
    local = max(round(local_gb * 1e9 * share / record), round(pending * 1.5))
    log_start = 0
    tiered_end = round(remote_gb * 1e9 * share / record)
    if (topic, index) == ("orders", 7):
        log_start, tiered_end, pending, local = 1_204_000, 9_120_448, 282_463, 992_799
    end = tiered_end + pending
    broker = index % BROKERS + 1
    replicas = [broker, broker % BROKERS + 1, (broker + 1) % BROKERS + 1]
    if (topic, index) == ("orders", 7):
        replicas = [2, 4, 5]
    isr = replicas[:2] if trouble and (topic, index) in (("orders", 7), ("telemetry", 143)) else replicas
    return {
        "topic": topic,
        "partition": index,
        "topic_id": uuid_text(100 + list(TOPICS).index(topic)),
        "leader": replicas[0],
        "leader_epoch": 17,
        "replicas": replicas,
        "isr": isr,
        "log_start_offset": log_start,
        "local_log_start_offset": max(end - local, log_start),
        "latest_tiered_offset": tiered_end - 1,
        "earliest_pending_upload_offset": tiered_end,
        "high_watermark": end - (31 if trouble else 0),
        "last_stable_offset": end - (31 if trouble else 0),
        "log_end_offset": end,
        "local_log_bytes": local * record,
        "remote_log_bytes": (tiered_end - log_start) * record,
        "tiered": True,
        "adding_replicas": [],
        "removing_replicas": [],
        "changed_ms": now_ms,
        "sampled_ms": now_ms,
    }


EPOCHS: Final = ((11, 0.0), (12, 0.208), (14, 0.379), (15, 0.6), (17, 0.829))


def _epochs(part: Row) -> list[list[int]]:
    start, end = part["log_start_offset"], part["log_end_offset"]
    return [[epoch, round(start + share * (end - start))] for epoch, share in EPOCHS]


def _replicas(part: Row, now_ms: int, trouble: bool) -> list[Row]:
    rows = []
    for position, broker in enumerate(part["replicas"]):
        in_isr = broker in part["isr"]
        end, local_start = part["log_end_offset"], part["local_log_start_offset"]
        stuck = not in_isr and part["topic"] == "telemetry"
        if position == 1:
            local_start += (end - local_start) // 5
        if not in_isr:
            local_start = part["earliest_pending_upload_offset"]
            end -= (end - local_start) * 2 // 5
        rows.append(
            {
                "topic": part["topic"],
                "partition": part["partition"],
                "broker_id": broker,
                "role": "follower" if position else "leader",
                "in_isr": in_isr,
                "log_start_offset": part["log_start_offset"],
                "local_log_start_offset": local_start,
                "latest_tiered_offset": part["latest_tiered_offset"],
                "log_end_offset": 0 if stuck else end,
                "local_log_bytes": round(part["local_log_bytes"] * (end - local_start) / (end or 1)),
                "phase": ("DELAYED" if stuck else "FETCHING") if not in_isr else "IN_SYNC",
                "phase_since_ms": now_ms - (8 * MINUTE_MS if stuck else 20_000),
                "phase_source": "exact",
                "leader_epochs": _epochs(part),
                "log_dir": "/data",
                "evidence": {"sentence": "3 attempts to build remote state failed."} if stuck else None,
                "changed_ms": now_ms,
                "sampled_ms": now_ms,
            }
        )
    return rows


def _remote(part: Row, now_ms: int, segments: Sequence[Row]) -> Row:
    """The summary of the partition; its open copies are those of the ledger."""
    key = (part["topic"], part["partition"])
    started = [row for row in segments if row["state"] == 0 and (row["topic"], row["partition"]) == key]
    zero = dict.fromkeys(
        [column.name for column in t.remote_partition.columns if column.name.endswith(("_segments", "_bytes"))], 0
    )
    return {
        **zero,
        "topic_id": part["topic_id"],
        "partition": part["partition"],
        "topic": part["topic"],
        "copy_started_segments": len(started),
        "copy_started_bytes": sum(row["segment_size_bytes"] for row in started),
        "copy_finished_segments": 44,
        "copy_finished_bytes": part["remote_log_bytes"],
        "highest_copied_offset": part["latest_tiered_offset"],
        "illegal_events": 0,
        "last_event_ms": now_ms - 9_000,
    }


def _segments(part: Row, now_ms: int, trouble: bool) -> list[Row]:
    start, end = part["log_start_offset"], part["latest_tiered_offset"] + 1
    chain, count = _epochs(part), 44
    base = (list(TOPICS).index(part["topic"]) * 1000 + part["partition"]) * 100
    bounds = [start + (end - start) * position // count for position in range(count + 1)]
    rows = []
    for number in range(count):
        first, following = bounds[number], bounds[number + 1]
        epochs = [[epoch, max(at, first)] for epoch, at in chain if at < following]
        inside = [entry for entry in epochs if entry[1] > first]
        own = [*epochs[-len(inside) - 1 : len(epochs) - len(inside)], *inside]
        started = now_ms - (count - number) * 5 * MINUTE_MS
        rows.append(_segment(part, uuid_text(base + number), first, following, own, started, started + 48_000))
    if trouble and (part["topic"], part["partition"]) == ("orders", 7):
        outside = _segment(
            part,
            uuid_text(base + 90),
            4_310_020,
            4_602_119,
            [[13, 4_310_020]],
            now_ms - 9 * HOUR_MS,
            now_ms - 8 * HOUR_MS,
        )
        rows.append(outside)
    if trouble and (part["topic"], part["partition"]) == ("telemetry", 143):
        hung = _segment(part, uuid_text(base + 91), end, end + 900_000, [[17, end]], now_ms - 175 * MINUTE_MS, None)
        rows.append(hung)
    return rows


def _segment(part: Row, name: str, first: int, following: int, epochs: Any, started: int, finished: int | None) -> Row:
    record = TOPICS[part["topic"]][1]
    return {
        "topic_id": part["topic_id"],
        "partition": part["partition"],
        "segment_id": name,
        "topic": part["topic"],
        "start_offset": first,
        "end_offset": following - 1,
        "state": 0 if finished is None else 1,
        "segment_size_bytes": min((following - first) * record, 2_000_000_000),
        "max_timestamp_ms": started - 60_000,
        "leader_epochs": epochs,
        "txn_index_empty": True,
        "copy_broker_id": part["leader"],
        "broker_id": part["leader"],
        "copy_started_ms": started,
        "copy_finished_ms": finished,
        "metadata_partition": 13,
        "last_event_offset": 0,
        "last_event_ms": finished or started,
    }


def _history(part: Row, now_ms: int) -> list[Row]:
    names = ("topic", "partition", "topic_id", "leader", "leader_epoch", "replicas", "isr", *OFFSETS_AND_SIZES)
    span = part["log_end_offset"] - part["local_log_start_offset"]
    rows = []
    for minute in range(61):
        back = round(span * 0.3 * (60 - minute) / 60)
        row = {name: part[name] for name in names}
        row["log_end_offset"] = row["high_watermark"] = part["log_end_offset"] - back
        row["last_stable_offset"] = row["high_watermark"]
        row["local_log_start_offset"] = max(0, part["local_log_start_offset"] - back)
        row["sampled_ms"] = now_ms - (60 - minute) * MINUTE_MS
        rows.append(row)
    return rows


def _totals(parts: list[Row], now_ms: int, trouble: bool) -> list[Row]:
    chance = random.Random(3)
    pending = sum(part["log_end_offset"] - part["earliest_pending_upload_offset"] for part in parts)
    size = 1000
    rows = []
    for step in range(240):
        at_ms = now_ms - (239 - step) * 15_000
        produced = 94_000 * 15 * step + chance.randrange(60_000)
        copied = (79_000 if trouble else 94_000) * 15 * step + chance.randrange(60_000)
        behind = pending - (239 - step) * 15 * 15_000 * (1 if trouble else 0)
        rows.append(
            {
                "sampled_ms": at_ms,
                "partitions": len(parts) + 50,
                "tiered_partitions": len(parts),
                "offline_partitions": 0,
                # The fifty that are not tiered have one replica each.
                "replicas": 3 * len(parts) + 50,
                "replicas_not_in_sync": (2 if step > 170 else 0) if trouble else 0,
                "brokers": BROKERS,
                "brokers_reachable": BROKERS,
                "log_end_offset_sum": produced,
                "produced_bytes": produced * size,
                "tiered_offset_sum": copied,
                "pending_offsets": max(behind, 1),
                "pending_bytes": max(behind, 1) * size,
                "local_log_bytes": 11_700_000_000_000 + chance.randrange(200_000_000_000),
                "remote_log_bytes": 216_000_000_000_000 + step * 10_000_000_000,
                "open_copies": 1,
                "oldest_open_copy_ms": (step * 43_000 if trouble else 20_000),
                "open_deletes": 0,
                "oldest_open_delete_ms": None,
            }
        )
    return rows


def _configs(now_ms: int, trouble: bool) -> list[Row]:
    rows = []
    own = {3: "false", 5: "true"} if trouble else {}
    for number in range(1, BROKERS + 1):
        synonyms = [{"name": FLAG, "value": "false", "source": "DEFAULT_CONFIG"}]
        if number in own:
            synonyms.insert(0, {"name": FLAG, "value": own[number], "source": "DYNAMIC_BROKER_CONFIG"})
        rows.append(_config(number, FLAG, synonyms, "BOOLEAN", False, now_ms))
        fixed = {
            "remote.log.storage.system.enable": ("true", "STATIC_BROKER_CONFIG", "BOOLEAN", True),
            "remote.log.manager.task.interval.ms": ("30000", "DEFAULT_CONFIG", "LONG", True),
            "remote.log.manager.copier.thread.pool.size": (
                "20" if number == 5 else "10",
                "DYNAMIC_BROKER_CONFIG" if number == 5 else "DEFAULT_CONFIG",
                "INT",
                False,
            ),
            "log.retention.ms": ("2592000000", "STATIC_BROKER_CONFIG", "LONG", False),
        }
        for name, (value, source, kind, read_only) in fixed.items():
            rows.append(
                _config(number, name, [{"name": name, "value": value, "source": source}], kind, read_only, now_ms)
            )
    return rows


def _config(broker: int, name: str, synonyms: list[Row], kind: str, read_only: bool, now_ms: int) -> Row:
    return {
        "resource_type": "broker",
        "resource": str(broker),
        "name": name,
        "value": synonyms[0]["value"],
        "source": synonyms[0]["source"],
        "is_sensitive": False,
        "is_read_only": read_only,
        "config_type": kind,
        "synonyms": synonyms,
        "sampled_ms": now_ms,
    }


def _findings(now_ms: int) -> list[Row]:
    """The findings of the control plane in this trouble."""
    rows = [
        ("copy-hung", "telemetry-143", None, "critical", "Copy hung: telemetry-143 on broker 6", 174,
         "Open for 2 h 55 m, 219× its p99."),
        ("follower-stuck", "telemetry-143 on broker 2", 2, "warning", "Follower stuck: telemetry-143 on broker 2", 8,
         "3 attempts to build remote state failed. For 8 m."),
        ("copy-slow", "telemetry-88", None, "warning", "Copying is behind: telemetry-88", 41,
         "47.9 GB in sealed segments are not uploaded."),
    ]  # fmt: skip
    return [
        {
            "slug": slug,
            "object": object_,
            "topic": "telemetry",
            "partition": int(object_.split(" ")[0].rpartition("-")[2]),
            "broker_id": broker_id,
            "severity": severity,
            "sentence": sentence,
            "action": "Look at its runbook.",
            "evidence": {"sentence": why},
            "opened_ms": now_ms - age_minutes * MINUTE_MS,
            "seen_ms": now_ms,
        }
        for slug, object_, broker_id, severity, sentence, age_minutes, why in rows
    ]


def finding_of_broker_4(now_ms: int) -> Row:
    """A broker that does not answer, as the control plane stores it."""
    return {
        "cluster_id": CLUSTER_ID,
        "slug": "broker-away",
        "object": "broker 4",
        "broker_id": 4,
        "severity": "warning",
        "sentence": "Broker 4 does not answer",
        "action": "Start it again.",
        "evidence": {"sentence": "Silent for 9 s. Connection refused."},
        "opened_ms": now_ms - 9_000,
        "seen_ms": now_ms,
    }


def _operations(now_ms: int) -> list[Row]:
    rows = []
    for number, (broker, value, author, age_ms, reason) in enumerate(
        (
            (3, "false", "ops-2", 52 * HOUR_MS, "keep deep replicas for EU exports"),
            (5, "true", "ops-1", 29 * MINUTE_MS, "trial before plan #91"),
        ),
        start=1,
    ):
        change = {"object": f"broker {broker}", "name": FLAG, "before": None, "after": value}
        rows.append(
            {
                "id": number,
                "kind": "toggle_bootstrap",
                "state": "verified",
                "author": author,
                "role": "operator",
                "reason": reason,
                "inputs": {"scope": "broker", "broker_id": broker, "enable": value == "true"},
                "snapshot": {"cluster_default": None, "brokers": {}},
                "diff": {"object": f"broker {broker}", "changes": [change]},
                "checks": [],
                "cli": ["kafka-configs.sh --alter"],
                "estimate": None,
                "result": {"executed_by": author},
                "created_ms": now_ms - age_ms,
                "updated_ms": now_ms - age_ms,
                "requested_ms": now_ms - age_ms,
                "finished_ms": now_ms - age_ms + 400,
            }
        )
    return rows


def _audit(now_ms: int) -> list[Row]:
    return [
        {
            "at_ms": now_ms - age_ms,
            "actor": actor,
            "role": "operator",
            "action": "execute toggle_bootstrap",
            "object": f"broker {broker}",
            "diff": {"changes": [{"object": f"broker {broker}", "name": FLAG, "before": None, "after": value}]},
            "reason": "trial",
            "operation_id": number,
            "cli": ["kafka-configs.sh --alter"],
            "result": "verified",
            "detail": "Every broker shows it.",
        }
        for number, (actor, broker, value, age_ms) in enumerate(
            (("ops-2", 3, "false", 52 * HOUR_MS), ("ops-1", 5, "true", 29 * MINUTE_MS)), start=1
        )
    ]
