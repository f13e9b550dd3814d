"""The pipeline: `__remote_log_metadata` through Structured Streaming into the ledger tables.

    source (reads Kafka, decodes) → transforms (DataFrame → DataFrame) → sinks (one transaction
    for events, ledger, summaries and offsets) ; `job` wires them, `heartbeat` says how it goes

The truth about progress is the table ``source_offsets``, not Spark's checkpoint: a run starts
where the database ends, whatever became of the checkpoint, and rows the database already has
are dropped in the sink.
"""
