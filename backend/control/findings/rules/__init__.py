"""The rules, by what they are about.

`broker_rules`: brokers, disks, throttles. `leader_rules`: partitions without a leader, unclean elections.
`replica_rules`: followers, moves, local data. `metadata_rules`: the metadata quorum and the remote log's metadata.
`copy_rules`: the remote tier. `reader_rules`: consumers of the remote tier. `own_data_rules`: the product's own data.
"""
