"""Partitions: replicas, leaders, ISR, directories (Kafka's ReplicationControlManager without topics).

- `partition_change`: one change of a partition as a record: election, ISR, ELR, replicas (PartitionChangeBuilder).
- `elections`: leader elections, asked for or because a broker comes or goes; `eligible_leader_replicas`: ELR (KIP-966).
- `recovery_verdict`: which log leads after an unclean shutdown of all that had every committed record.
- `isr_change`: AlterPartition. `partition_reassignment`: AlterPartitionReassignments and its list.
- `more_partitions`, `replica_lists`, `replica_placer`: new partitions and where their replicas go.
- `replica_directories`, `registered_directories`: in which directory a replica lies (KIP-858).
"""
