"""One partition on local disk, in the exact on-disk format of Apache Kafka 4.3.

Place in the flow: `replica/replica_manager` appends to and reads from `unified_log.UnifiedLog`, which adds leader
epochs, producers, the high watermark and the remote part to the `local_log.LocalLog` of segment files;
`manager/log_manager.LogManager` owns the logs of one broker. All calls come from the loop's thread unless a docstring
says otherwise; files are reached through `ports.disk`, time is an argument.

In reading order:

- `unified_log`: one partition's log. Its parts: `local_log` (segments), `log_offsets`, `local_reader`, `log_appender`,
  `log_truncation`, `local_retention`, `leader_epoch_cache` and `epoch_checkpoint`, `log_health`, `log_flusher`,
  `index_repair`, `log_cleaning`, `partition_folder`; `changed_logs` are on their way to replicas.
- `segments`: a `.log` file and its indexes.
- `validation`: checks of batches before they are appended.
- `producers`: idempotence and transactions of one partition (KIP-98, KIP-890).
- `recovery`: opening a folder after a clean stop or a crash.
- `manager`: directories, opening and closing, flushes, checkpoints, moves between directories.
- `cleaner`: compaction.
- `log_config`, `log_errors`, `file_names`, `checkpoint_files`: values and formats that all of them use.
"""
