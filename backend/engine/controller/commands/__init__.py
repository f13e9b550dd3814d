"""Commands: pure functions from the newest image and a request to metadata records and a response (KIP-500, KIP-631).

- `command`: what a command gives back, and the limits that all share.
- `topics`, `partition`: topics; replicas, leaders, ISR and directories of their partitions.
- `config`: dynamic settings and the rules for each kind of resource; `client_quotas`, `scram`, `features`.
- `cluster`, `cluster_start`, `brokers`: the first records, the start of a whole cluster, brokers that come and go.
- `allocate_producer_ids`: blocks of producer ids.
"""
