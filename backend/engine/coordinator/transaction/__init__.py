"""Transactions that this broker coordinates, and its questions to other coordinators (KIP-98, KIP-890).

- `transaction`: the value: a transactional id, its producer, its state and partitions.
- `transaction_state`: pure decisions: what a request makes of a transaction.
- `transaction_coordinator`: the driver: looks up, stores, answers, ends transactions that time out.
- `transaction_markers`: WriteTxnMarkers to the leaders of the transaction's partitions.
- `transaction_shard`, `transaction_records`: one partition of `__transaction_state` in memory and as records.
- `transaction_verifier`: a partition leader asks the coordinator whether a producer may write.
Kafka: `TransactionCoordinator`, `TransactionStateManager`, `TransactionMarkerChannelManager`.
"""
