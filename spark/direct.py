"""From the topic into a sink without Spark: the same reading, the same ledger, in this process.

For work that a JVM would only slow down (rebuild, verify), and as the measure of what Spark costs and gives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import pyarrow as pa

from spark.kafka import BrokersAway, TopicOffsets
from spark.reading import MetadataGap, open_consumer, read
from spark.settings import PipelineSettings
from spark.sinks.ledger_sink import LedgerSink, Stopped

T = TypeVar("T")
PATIENCE_S: Final = 20.0
RECORDS_AT_ONCE: Final = 20_000  # of about 700 bytes: 14 MB

ReportProgress = Callable[[int, int], None]
"""Called after every part with the records stored so far and the records to store."""


class DirectReader:
    """Reads the source topic of ``settings`` into sinks. Close it in the end. Not for several threads."""

    def __init__(self, settings: PipelineSettings, name: str, stop: threading.Event) -> None:
        self._topic = settings.source_topic
        self._stop = stop
        self._offsets = TopicOffsets(
            settings.bootstrap_servers, settings.source_topic, settings.client_properties, name
        )
        self._source = open_consumer(settings.bootstrap_servers, settings.client_properties)

    def low(self) -> dict[int, int]:
        """The first offset of every topic partition. Raises TopicMissing or BrokersAway."""
        return {partition: held.low for partition, held in self._patiently(self._offsets.offsets_held).items()}

    def high(self) -> dict[int, int]:
        """The offset of the next record of every topic partition. Raises TopicMissing or BrokersAway."""
        return self._patiently(self._offsets.high)

    def topic_id(self) -> str | None:
        """The topic's id. Raises TopicMissing or BrokersAway."""
        return self._patiently(self._offsets.topic_id)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer, asked for again while no leader gives it: a busy broker's may come late."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except BrokersAway:
                if time.monotonic() > deadline_s or self._stop.wait(0.2):
                    raise

    def copy(self, sink: LedgerSink, until: Mapping[int, int], report_progress: ReportProgress | None = None) -> int:
        """Store what the topic holds below ``until`` and the sink does not have yet; returns how many records.

        Raises MetadataGap, BrokersAway, and Stopped; what was stored until then stays.
        """
        low, stored_to = self.low(), sink.next_offsets()
        ranges = []
        for partition, end in sorted(until.items()):
            start = stored_to.get(partition, low.get(partition, 0))
            if start < low.get(partition, 0):
                raise MetadataGap(f"{self._topic}-{partition}", f"begins at offset {low[partition]}, {start} was next")
            if start < end:
                ranges.append((partition, start, end))
        total = sum(end - start for _, start, end in ranges)
        stored, waiting = 0, 0
        parts: list[pa.RecordBatch] = []
        for batch in read(self._source, self._topic, ranges) if ranges else ():
            if self._stop.is_set():
                raise Stopped
            parts.append(batch)
            waiting += batch.num_rows
            if waiting >= RECORDS_AT_ONCE:
                stored += _store(sink, parts)
                waiting = 0
                if report_progress is not None:
                    report_progress(stored, total)
        stored += _store(sink, parts)
        if report_progress is not None:
            report_progress(stored, total)
        return stored

    def close(self) -> None:
        self._source.consumer.close()
        self._offsets.close()


def _store(sink: LedgerSink, parts: list[pa.RecordBatch]) -> int:
    """Store and forget the parts."""
    if not parts:
        return 0
    records = pa.Table.from_batches(parts)
    parts.clear()
    return sum(written.records for written in sink.write(0, records))
