"""The metadata quorum's log (KIP-595): `__cluster_metadata-0` in Kafka's format, its epochs, and Fetch from it.

One voter for now: this node leads from its start on, each start is a new epoch, and what is flushed is committed. Fetch
by brokers (observers) is already Kafka's, so that more voters and snapshots (KIP-630) change nothing for them.
"""
