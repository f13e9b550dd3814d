"""A large cluster beside the seeded one: 10,000 partitions in all, and as many remote segments as asked for.

Written by SQLite itself from a count (one statement a table), so that 50,000 rows take half a second and the
2.6 million segments of the largest cluster some minutes (3 GB). SQLite only.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection

from backend.store import tables as t
from backend.store.connection.database import writing
from tests.databases import opened_engine
from tests.ui import seed

PARTITIONS: Final = 10_000
TOPIC_PARTITIONS: Final = 100
SEGMENTS_EACH: Final = 260  # 10,000 partitions: 2.6 million segments, 5.2 million events
EVENTS_A_SEGMENT: Final = 2
RECORDS_A_SEGMENT: Final = 1_000_000
RECORD_BYTES: Final = 1_000
COPY_EVERY_MS: Final = 5 * 60_000
COPY_TAKES_MS: Final = 40_000
# p: number of the partition, of topic bulk-NN; s: number of the segment in it; r: position of the replica.
_NUMBERS: Final = "WITH RECURSIVE n(v) AS (SELECT 0 UNION ALL SELECT v + 1 FROM n WHERE v + 1 < {most})"
_TOPIC: Final = f"printf('bulk-%02d', p / {TOPIC_PARTITIONS})"
_TOPIC_ID: Final = f"printf('bulk%018d', p / {TOPIC_PARTITIONS})"
_SEGMENT_ID: Final = "printf('%012d%010d', p, s)"
_LEADER: Final = f"p % {seed.BROKERS} + 1"
_BROKER: Final = f"(p + r) % {seed.BROKERS} + 1"
_REPLICAS: Final = f"json_array({_LEADER}, (p + 1) % {seed.BROKERS} + 1, (p + 2) % {seed.BROKERS} + 1)"
_TIERED: Final = f"max({{segments}}, 1) * {RECORDS_A_SEGMENT}"
# Most are a few MB behind, some many GB: every step of the heatmap is there.
_PENDING: Final = "(10000 + (p * 7919) % 90000 + (p % 97 = 0) * 6500000 + (p % 211 = 0) * 9000000)"
_LOCAL: Final = f"{_PENDING} + 2000000"
_COPY_MS: Final = f"{{now_ms}} - ({{segments}} - s) * {COPY_EVERY_MS} - p * 29 % {COPY_EVERY_MS}"
_EPOCHS: Final = f"json_array(json_array(17, s * {RECORDS_A_SEGMENT}))"


def seed_many(url: str, now_ms: int, *, partitions: int = PARTITIONS, segments: int = 1, **options: Any) -> None:
    """As :func:`seed.seed`, and topics ``bulk-NN`` until the cluster has ``partitions``, each with ``segments``."""
    seed.seed(url, now_ms, **options)
    own = sum(row[0] for row in seed.TOPICS.values())
    with opened_engine(url) as engine, writing(engine) as connection:
        fill = _Fill(connection, now_ms, max(0, partitions - own), segments)
        fill.cluster()
        fill.ledger()


class _Fill:
    """One statement a table: for every partition (p), replica (r) or segment (s) the same expressions."""

    def __init__(self, connection: Connection, now_ms: int, partitions: int, segments: int) -> None:
        self._connection = connection
        self._values = {"now_ms": now_ms, "segments": segments}
        self._partitions, self._segments = partitions, segments

    def _insert(self, table: str, each: int, inner: str, **columns: str) -> None:
        columns = {"cluster_id": f"'{seed.CLUSTER_ID}'", **columns}
        chosen = ", ".join(columns.values()).format(**self._values)
        counted = _NUMBERS.format(most=self._partitions * each)
        source = f"(SELECT v / {each} AS p, v % {each} AS {inner} FROM n)"
        self._connection.exec_driver_sql(
            f"{counted} INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} FROM {source}"
        )

    def cluster(self) -> None:
        """Topics, partitions and replicas as the observer sees them."""
        place = {"topic": _TOPIC, "partition": f"p % {TOPIC_PARTITIONS}"}
        end = f"{_TIERED} + {_PENDING}"
        common = {
            "log_start_offset": "0",
            "local_log_start_offset": f"max({end} - ({_LOCAL}), 0)",
            "latest_tiered_offset": f"{_TIERED} - 1",
            "log_end_offset": end,
            "local_log_bytes": f"({_LOCAL}) * {RECORD_BYTES}",
            "changed_ms": "{now_ms}",
            "sampled_ms": "{now_ms}",
        }
        self._insert(
            "partition_current",
            1,
            "r",
            **place,
            **common,
            topic_id=_TOPIC_ID,
            leader=_LEADER,
            leader_epoch="17",
            replicas=_REPLICAS,
            isr=_REPLICAS,
            earliest_pending_upload_offset=_TIERED,
            high_watermark=end,
            remote_log_bytes=f"{_TIERED} * {RECORD_BYTES}",
            tiered="1",
        )
        self._insert(
            "replica_current",
            3,
            "r",
            **place,
            **common,
            broker_id=_BROKER,
            role="CASE r WHEN 0 THEN 'leader' ELSE 'follower' END",
            in_isr="1",
            phase="'IN_SYNC'",
            phase_since_ms="{now_ms} - 7200000",
            phase_source="'exact'",
            leader_epochs="json_array(json_array(17, 0))",
            log_dir="'/data'",
        )
        names = [column.name for column in t.remote_partition.columns]
        zero = [name for name in names if name.endswith(("_segments", "_bytes"))]
        finished = {
            "copy_finished_segments": "{segments}",
            "copy_finished_bytes": f"{{segments}} * {RECORDS_A_SEGMENT * RECORD_BYTES}",
        }
        self._insert(
            "remote_partition",
            1,
            "r",
            **place,
            **dict.fromkeys(zero, "0") | finished,
            topic_id=_TOPIC_ID,
            highest_copied_offset=f"{_TIERED} - 1",
            illegal_events="0",
            last_event_ms="{now_ms} - 9000",
        )
        self._copy_topics()

    def _copy_topics(self) -> None:
        """The topics of the partitions, configured as `orders` is."""
        names = [column.name for column in t.topic.columns]
        columns = ", ".join(name for name in names if name not in ("topic", "topic_id"))
        named = _NUMBERS.format(most=-(-self._partitions // TOPIC_PARTITIONS) * TOPIC_PARTITIONS)
        self._connection.exec_driver_sql(
            f"{named} INSERT INTO topic (topic, topic_id, {columns}) SELECT DISTINCT {_TOPIC}, {_TOPIC_ID}, {columns}"
            f" FROM (SELECT v AS p FROM n), topic WHERE topic = 'orders' AND p < {self._partitions}"
        )
        self._connection.exec_driver_sql(
            f"UPDATE topic SET partition_count = {TOPIC_PARTITIONS} WHERE topic LIKE 'bulk-%'"
        )

    def ledger(self) -> None:
        """Segments and their events as the pipeline leaves them; all copied, an hour's worth of them lately."""
        facts = {
            "topic": _TOPIC,
            "topic_id": _TOPIC_ID,
            "partition": f"p % {TOPIC_PARTITIONS}",
            "segment_id": _SEGMENT_ID,
            "start_offset": f"s * {RECORDS_A_SEGMENT}",
            "end_offset": f"(s + 1) * {RECORDS_A_SEGMENT} - 1",
            "segment_size_bytes": str(RECORDS_A_SEGMENT * RECORD_BYTES),
            "max_timestamp_ms": _COPY_MS,
            "leader_epochs": _EPOCHS,
            "txn_index_empty": "1",
            "broker_id": _LEADER,
        }
        if self._segments == 0:
            return
        self._insert(
            "segment",
            self._segments,
            "s",
            **facts,
            state="1",
            copy_broker_id=_LEADER,
            copy_started_ms=f"{_COPY_MS} - {COPY_TAKES_MS}",
            copy_finished_ms=_COPY_MS,
            metadata_partition="p % 50",
            last_event_offset=f"(p * {self._segments} + s) * {EVENTS_A_SEGMENT} + 1",
            last_event_ms=_COPY_MS,
        )
        self._insert(
            "segment_interval",
            self._segments,
            "s",
            **{name: facts[name] for name in ("topic_id", "partition", "segment_id", "start_offset", "end_offset")},
            segment_size_bytes=facts["segment_size_bytes"],
            from_ms=_COPY_MS,
            node="0",
        )
        for number in range(EVENTS_A_SEGMENT):
            self._insert(
                "segment_event",
                self._segments,
                "s",
                **facts,
                metadata_partition="p % 50",
                metadata_offset=f"(p * {self._segments} + s) * {EVENTS_A_SEGMENT} + {number}",
                kind=str(number),
                state=str(number),
                event_timestamp_ms=f"{_COPY_MS} - {COPY_TAKES_MS * (EVENTS_A_SEGMENT - 1 - number)}",
                record_timestamp_ms=_COPY_MS,
                legal="1",
            )
