"""The logs of one broker and the directories of `log.dirs`.

`log_manager` owns both; `directory_set` are the directories, `log_directory` one of them, with its lock and identity.
`log_opening` opens the logs of a start, `housekeeping` flushes and removes files, `offset_checkpoints` writes the
checkpoint files, `future_log` moves a log to another directory (KIP-113), `stray_replicas` keeps unused replicas.
"""
