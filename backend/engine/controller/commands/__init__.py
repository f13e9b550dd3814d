"""Commands: pure functions from the newest image and a request to metadata records and a response (KIP-500, KIP-631).

- `command`: what a command gives back, and the limits that all share.
- `topic_commands`, `partition`: topics; replicas, leaders, ISR and directories of their partitions.
- `config`: dynamic settings and the rules for each kind of resource.
- `client_quota_control`, `scram_control`, `feature_control`: quotas, credentials, feature levels.
- `cluster_bootstrap`, `cluster_start`, `brokers`: first records, start of a whole cluster, brokers that come and go.
- `producer_id_control`: blocks of producer ids.
"""
