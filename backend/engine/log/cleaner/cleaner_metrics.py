"""Metrics of the log cleaner, under Kafka's MBean names (kafka.log:type=LogCleaner and LogCleanerManager)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from backend.engine.log.manager.log_manager import LogManager
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Clock
from backend.tiering.ids import TopicPartition


def register_cleaner_metrics(manager: LogManager, clock: Clock, metrics: BrokerMetrics) -> None:
    """Gauges, read on the scraping thread."""
    cleaner = manager.cleaner
    prefix = "kafka_log_logcleaner"

    def recopy_percent() -> float:
        stats = list(cleaner.last_stats.values())
        read = sum(run.bytes_read for run in stats)
        return float(100 * sum(run.bytes_written for run in stats) // max(1, read))

    def by_directory(value_of: Callable[[TopicPartition], int]) -> Iterable[tuple[Mapping[str, str], float]]:
        totals = dict.fromkeys((log_dir.path for log_dir in manager.directories.dirs), 0)
        for partition in list(cleaner.uncleanable):
            log = manager.get(partition)
            if log is not None:
                totals[log.dir.rpartition("/")[0]] += value_of(partition)
        return [({"logDirectory": path}, float(value)) for path, value in totals.items()]

    for name, doc, read in (
        (
            "max_buffer_utilization_percent",
            "How full the memory for keys was in the last compaction",
            lambda: float(int(100 * max((s.buffer_utilization for s in list(cleaner.last_stats.values())), default=0))),
        ),
        ("cleaner_recopy_percent", "Bytes that the last compaction kept of what it read", recopy_percent),
        (
            "max_clean_time_secs",
            "How long the last compaction took",
            lambda: float(max((s.elapsed_ms for s in list(cleaner.last_stats.values())), default=0) // 1000),
        ),
        (
            "max_compaction_delay_secs",
            "By how much max.compaction.lag.ms is exceeded",
            lambda: float(cleaner.overdue_ms_max // 1000),
        ),
        ("deadthreadcount", "Cleaners that ended by an error", lambda: float(cleaner.dead_threads)),
    ):
        metrics.add_gauge(f"{prefix}_{name}", doc, read)
    prefix = "kafka_log_logcleanermanager"
    metrics.add_gauge(
        f"{prefix}_max_dirty_percent",
        "Share of dirty bytes of the dirtiest log",
        lambda: float(int(100 * cleaner.dirtiest_ratio)),
    )
    metrics.add_gauge(
        f"{prefix}_time_since_last_run_ms",
        "Since a log to compact was last looked for",
        lambda: float(clock.time_ms() - cleaner.last_run_ms),
    )
    metrics.add_gauge(
        f"{prefix}_uncleanable_partitions_count",
        "Partitions that cannot be compacted",
        lambda: by_directory(lambda _: 1),
    )
    metrics.add_gauge(
        f"{prefix}_uncleanable_bytes",
        "What should be compacted of these",
        lambda: by_directory(lambda partition: cleaner.uncleanable_bytes.get(partition, 0)),
    )
