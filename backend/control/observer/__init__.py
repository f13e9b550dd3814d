"""Samples the cluster into the database: what is where on every replica, and what it means.

How a sample travels: ``sampler`` asks the gateway and gives ``facts`` (frozen values) → ``pending``, ``phases`` and
``totals`` conclude what Kafka does not say (pure functions; they say how sure they are) → ``rows`` → ``recorder``
(buffers, database thread). ``events`` follows `__ebbline_events`, where the embedded engine tells its phases exactly.
``observer`` is the loop that drives them.
"""
