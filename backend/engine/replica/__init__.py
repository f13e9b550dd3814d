"""Replication of partitions between brokers: ISR and high watermark on the leader, fetching on followers.

A produced batch travels ``apis/produce`` → ``replica_manager`` → ``partition`` → ``log``; the append wakes fetches
that wait in ``purgatory``, the followers' next fetch carries their log ends, ``partition_state`` moves the high
watermark, and that completes waiting produce requests and consumer fetches. On the other side ``fetcher`` asks each
leader, ``fetch_state`` decides what every answer means, and ``tier_state`` how a follower starts when the leader's
data has moved to the remote tier (KIP-405, KIP-1023).
"""
