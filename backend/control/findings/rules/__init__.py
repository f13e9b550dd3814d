"""The rules, by what they are about.

`liveness_rules`: the cluster as a whole, and the pipeline. `broker_rules`: brokers. `disk_rules`: log directories and
their disks. `throttle_rules`: throttles that were left behind. `leader_rules`: partitions without a leader or with too
few replicas in sync. `last_leader_rules`: brokers that would lead without records. `election_rules`: leaders that were
not elected from the ISR. `replica_rules`: followers, moves, local data. `quorum_rules`: the metadata quorum.
`metadata_rules`: the remote log's metadata. `copy_rules`: the remote tier. `failing_copy_rules`: copies that fail.
`metered_copy_rules`: those by meters alone. `slow_copy_rules`: copies that fall behind. `transaction_rules`:
transactions that hold them. `reader_rules`: consumers of the remote tier and their groups. `remote_read_rules`: reads
of it that fail or expire. `own_data_rules`: the product's own data.
"""
