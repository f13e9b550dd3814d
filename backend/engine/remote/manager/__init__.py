"""The remote log manager of a broker: tasks that copy, expire and delete, and reads (KIP-405).

`remote_log_manager` runs a `task_loop` for each role of a partition: `copy_task`, `expiration_task`, or the follower's.
All of them get the parts they share as a `tier`. `copied_offsets` finds how far a log is copied, `segment_deletion`
deletes segments, `partition_remover` all of a deleted topic's. `remote_read` and `remote_timestamp_search` answer
fetches and look-ups by time, both with `segment_scan`; `remote_aux_state` is what a follower rebuilds from the tier.
`rlm_quota_manager` limits bytes a second (KIP-956), `failure_log` the lines in the broker's log.
"""
