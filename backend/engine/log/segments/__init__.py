"""The segments of a log: one `.log` file each, with its indexes.

`log_segments` is their list, `log_segment` one of them, `segment_files` its files on disk; `offset_index`, `time_index`
and `transaction_index` are the formats of `.index`, `.timeindex` and `.txnindex`; `timestamp_search` finds an offset by
time.
"""
