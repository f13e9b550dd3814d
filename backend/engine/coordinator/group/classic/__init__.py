"""The classic group protocol as a pure state machine: (group, event) → (group, effects).

- `classic_group`: the values: group, member, events, effects.
- `rebalance`: the group while an event is applied: members, join and sync phases.
- `joining`: JoinGroup.
- `classic_step`: the entry: every event, dispatched.
Kafka: `ClassicGroup` and the classic part of `GroupMetadataManager`.
"""
