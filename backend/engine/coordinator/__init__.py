"""Groups of the classic and of the consumer protocol (KIP-848) with their committed offsets, and transactions.

- `group`: JoinGroup … OffsetFetch for classic and consumer groups, records of `__consumer_offsets`.
- `transaction`: InitProducerId … EndTxn, records of `__transaction_state`, markers, questions of partition leaders.
- `coordinator_shards`: the partitions of either topic that this broker leads: taken over, read, written, given up.
- `log_reader`, `topics_view`, `request_batches`, `name_regex`: parts that both use.

Place in the flow: `apis` passes requests to `group.group_coordinator.GroupCoordinator` or
`transaction.transaction_coordinator.TransactionCoordinator`. The coordinator looks up the group or the transactional
id, a pure function decides, and the coordinator carries the decision out and stores it as records. The broker that
leads the partition coordinates what is in it.
Kafka: `GroupCoordinatorService`, `TransactionCoordinator`, `AddPartitionsToTxnManager`.
"""
