"""The follower's side of replication: fetching from the leaders of the partitions that this broker follows.

``replica_fetcher_manager`` keeps one ``replica_fetcher`` for each leader broker; it asks in fetch sessions
(``fetch_session_handler``), ``fetch_state`` decides what each answer means, and ``followed_partition`` carries that out
on the log. ``tier_state`` plans how a follower starts when the leader's data has moved to the remote tier (KIP-405,
KIP-1023); ``tier_state_runner`` runs these plans and asks the leader through ``leader_end_point``.
"""
