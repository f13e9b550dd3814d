"""Remote log metadata: which segments exist, and in which state they are (KIP-405).

`remote_log_metadata_manager` is the contract, `topic_based_metadata_manager` the built-in implementation on the topic
`__remote_log_metadata` (`metadata_topic`), `in_memory_metadata_manager` another; `cached_lookups` are the queries of
both. `metadata_consumer` reads the topic into a `remote_log_metadata_cache` for each `hosted_partition`;
`applied_barrier` lets a publisher wait for its own record. The cache keeps packed `segment_rows`,
found by id with `segment_table`, summed up as `segment_summary`; `record_runs` turns records of
the topic into such rows by the thousand. `metadata_files`, with `metadata_file_entries` and `resume_points`, keeps the
caches over a restart.
`remote_segment_index` answers what retention asks; `metadata_scan` reads partitions of the topic that no hosted
partition needs.
"""
