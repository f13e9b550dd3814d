"""Compaction (KIP-58, KIP-98, KIP-280, KIP-534).

`log_cleaner` chooses a log by the rules of `cleanable_logs` and drives one `cleaner` over it; `offset_map` has the last
offset of each key, `batch_filter` decides about each batch, `cleaned_transactions` about markers and aborted records.
`cleaner_metrics` are its gauges.
"""
