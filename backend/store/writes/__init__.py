"""Writes by the subject of their rows, each in the caller's transaction; the ledger is written by ``spark/sinks``.

``cluster_rows`` (with ``upsert``, on which the others stand), ``observer_rows``, ``samples``, ``finding_rows``,
``maintenance_rows``, ``operation_rows``.
"""
