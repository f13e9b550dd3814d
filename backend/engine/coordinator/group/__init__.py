"""Groups and their committed offsets, as one partition of `__consumer_offsets` after the other holds them.

- `group_coordinator`: the entry for requests of classic groups and for administration.
- `classic`: the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) as a state machine over values.
- `consumer`: the consumer protocol (ConsumerGroupHeartbeat, KIP-848), and the change from one protocol to the other.
- `group_offsets`, `transactional_offsets`, `offset_store`: offsets that are committed, pending, written and expired.
- `group_shard`, `group_records`, `record_frames`: one partition in memory, and its records in Kafka's format.
- `subscriptions`, `consumer_protocol`: the bytes that consumers exchange inside the classic protocol.
Kafka: `GroupMetadataManager`, `OffsetMetadataManager`, `GroupCoordinatorRecordHelpers`.
"""
