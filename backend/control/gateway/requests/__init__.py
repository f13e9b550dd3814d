"""Typed calls of the gateway, one module for each subject of Kafka's admin protocol.

Reads: `metadata_requests`, `offset_requests`, `epoch_requests`, `log_dir_requests`, `quorum_requests`,
`feature_requests`, `group_requests`, `eligible_replica_requests`, `record_requests`, `transaction_requests`. Reads and
changes: `config_requests`, `reassignment_requests`. Changes: `election_requests`, `delete_records_request`.
"""
