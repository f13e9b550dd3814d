"""The consumer group protocol (KIP-848): the coordinator assigns, members reconcile.

- `consumer_group`: the values: group, member, subscription, what a member owns.
- `consumer_heartbeat`: a heartbeat as a function: (group, event, topics) → group and response.
- `consumer_group_update`: the group while an event is applied: subscriptions become a target assignment.
- `reconciliation`: one step of a member towards its target; `assignors`: how targets are made.
- `classic_members`: members of the classic protocol in a consumer group; upgrade and downgrade of groups.
- `consumer_group_coordinator`: the driver: requests in, records out, responses once the records are replicated.
- `consumer_group_records`: the group as records of `__consumer_offsets`.
Kafka: `ConsumerGroup`, `CurrentAssignmentBuilder`, `TargetAssignmentBuilder`.
"""
