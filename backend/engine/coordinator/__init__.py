"""Groups of the classic and of the consumer protocol (KIP-848) with their committed offsets, and transactions.

Place in the flow: `apis` hands requests to `group_coordinator.GroupCoordinator` or
`transaction_coordinator.TransactionCoordinator`, which finds the group or the transactional id, lets a pure function
decide (`group_state.step`, `consumer_group_state`, `consumer_group_classic`, `transaction_state`), carries the decision
out and stores it as records of `__consumer_offsets` or `__transaction_state`. The broker that leads the partition
coordinates what is in it. As a leader of other partitions a broker asks coordinators through `transaction_verifier`.
Facts: Kafka's `GroupMetadataManager`, `ClassicGroup`, `ConsumerGroup`, `TransactionCoordinator`,
`AddPartitionsToTxnManager`.
"""
