"""The rules, by what they are about.

`cluster_rules`: brokers, disks, the metadata topic, throttles. `replica_rules`: followers, moves, leaders.
`copy_rules`: the remote tier. `reader_rules`: consumers of the remote tier. `record_rules`: unreadable records.
`database_rules`: the product's own database.
"""
