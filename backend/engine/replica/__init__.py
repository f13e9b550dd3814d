"""Replication of partitions between brokers: ISR and high watermark on the leader, fetching on followers.

A produced batch travels ``apis/produce`` → ``replica_manager`` → ``partition`` → ``log``; the append wakes fetches
that wait in ``purgatory``, the followers' next fetch carries their log ends, ``partition_state`` moves the high
watermark, and that completes waiting produce requests and consumer fetches. The follower's side is ``fetchers``.

In reading order:

- roles from metadata: ``applied_metadata``, ``metadata_changes`` (pure), ``role_changes``, ``hosted_partitions``,
  ``topic_configs``, ``remote_roles``; another directory for a replica: ``log_dir_moves``;
- a partition: ``partition`` and the parts it uses (``partition_context``), ``replica_progress`` (a leader's view of its
  followers), ``partition_state`` (pure decisions), ``alter_partition_manager``, ``assignments_manager``;
- reads: ``fetch_data``, ``fetch_reads``, ``partition_reads``, ``remote_reads`` (through ``remote_logs``),
  ``offset_lookup``, ``replica_selector``, ``replication_quota``;
- waiting: ``purgatory``, ``delayed_operations``, ``delayed_remote``, ``deadlines``, ``action_queue``;
- all of a broker: ``replica_manager``, ``replica_metrics``.
"""
