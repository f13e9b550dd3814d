"""The metadata quorum (KIP-595, KIP-630, KIP-996): `__cluster_metadata-0` in Kafka's format, on one or three voters.

`quorum` decides (pure), `node` carries out, `follower` fetches from the leader, `fetch` is what the leader answers to a
fetch, `metadata_log` and `snapshots` are the files.
"""
