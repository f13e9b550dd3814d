"""The metadata quorum (KIP-595, KIP-630, KIP-996): `__cluster_metadata-0` in Kafka's format, on one or three voters.

- `raft_state`, `quorum_state`: a node's place in the quorum as a value, and the part of it that is on disk.
- `election`, `voter_progress`, `leader_fetch`: pure decisions: who leads, what is committed, the response to a fetch.
- `raft_node`: the driver: carries out what these decide; `election_timer`, `leader_wait`, `observers`: parts of it.
- `voter_requests`, `metadata_fetcher`: requests to other voters, and a follower's fetches from its leader.
- `metadata_log`, `metadata_batches`, `metadata_log_opening`, `snapshot_files`: the files.
- `voter_memory`, `voter_directories`, `acknowledged`: whether a voter's folder still holds all that it has promised.
Kafka: `KafkaRaftClient`, `QuorumState`, `LeaderState`, `KafkaMetadataLog`.
"""
