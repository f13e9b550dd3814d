"""Consumer groups of the classic protocol and their committed offsets.

Place in the flow: `apis` hands requests to `group_coordinator.GroupCoordinator`, which finds the group, gives the event
to the pure state machine (`group_state.step`), carries out its effects and stores groups and offsets as records of
`__consumer_offsets`. The broker that leads the partition of a group coordinates it. Facts: Kafka's
`GroupMetadataManager`, `ClassicGroup`.
"""
