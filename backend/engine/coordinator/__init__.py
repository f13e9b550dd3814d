"""Groups of the classic and of the consumer protocol (KIP-848), and their committed offsets.

Place in the flow: `apis` hands requests to `group_coordinator.GroupCoordinator`, which finds the group, gives the event
to the pure state machine (`group_state.step`), carries out its effects and stores groups and offsets as records of
`__consumer_offsets`. Groups of the consumer protocol go the same way through `consumer_groups`, with the decisions in
`consumer_group_state` and `consumer_group_classic`. The broker that leads the partition of a group coordinates it.
Facts: Kafka's `GroupMetadataManager`, `ClassicGroup`, `ConsumerGroup`.
"""
