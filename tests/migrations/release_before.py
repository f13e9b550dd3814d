"""Code that runs with the wheel of release 0.1.0 on its path: that release's sink, and the pages' reads.

python release_before.py URL RECORDS    RECORDS: a file of lines [partition, offset, timestamp, value in hex]

Stores the first half and says where its program is, waits for a line, then stores the second half and reads what the
pages show. It runs in a separate process and imports only modules of that release.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa

from backend.store.connection.database import create_engine, reading
from backend.store.queries import overview, partitions
from spark.decode import RawRecord, to_batch
from spark.sinks.ledger_sink import LedgerSink

CLUSTER = "cluster-of-0.1.0"


def main(url: str, file: str) -> None:
    records: list[RawRecord] = []
    for line in Path(file).read_text().splitlines():
        partition, offset, timestamp_ms, value = json.loads(line)
        records.append((partition, offset, timestamp_ms, None, bytes.fromhex(value)))
    engine = create_engine(url)
    sink = LedgerSink(engine, cluster_id=CLUSTER, job="ledger", source_topic="__remote_log_metadata")
    first = max(record[1] for record in records) // 2
    sink.write(0, pa.Table.from_batches([to_batch([record for record in records if record[1] <= first])]))
    print(Path(overview.__file__).parents[3], flush=True)
    sys.stdin.readline()
    assert sink.next_offsets()
    sink.write(1, pa.Table.from_batches([to_batch([record for record in records if record[1] > first])]))
    with reading(engine) as connection:
        totals = overview.ledger_totals(connection, CLUSTER)
        overview.brokers(connection, CLUSTER)
        partitions.partitions(connection, CLUSTER)
    engine.dispose()
    print(totals.copy_finished_segments, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
