"""Replication of partitions between brokers: ISR and high watermark on the leader, fetching on followers.

A produced batch travels ``apis/produce`` → ``replica_manager`` → ``partition`` → ``log``; the append wakes fetches
that wait in ``purgatory``, the followers' next fetch carries their log ends, ``partition_state`` moves the high
watermark, and that completes waiting produce requests and consumer fetches. The follower's side is ``fetchers``.

In reading order. Roles from metadata: ``metadata_changes`` (pure), ``role_changes``, ``log_dir_moves``. A partition:
``partition``, ``replica_progress`` (a leader's view of its followers), ``partition_state`` (pure decisions),
``alter_partition_manager``, ``assignments_manager``. Requests: ``fetch_data`` and ``fetch_reads``, ``offset_lookup``,
``purgatory`` and ``deadlines``, ``delayed_remote`` (the remote tier, through ``remote_logs``), ``replica_selector``.
"""
