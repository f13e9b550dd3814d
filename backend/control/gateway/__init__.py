"""A typed, asynchronous Kafka client for administration.

How a question travels: a typed call (``offsets``, ``epochs``, ``configs``, ``log_dirs``, ``metadata``,
``reassignments``, ``events``) → ``client`` (which broker, which version, when to try again) → ``pool`` (a bounded
number of connections per broker) → ``connection`` (frames, correlation ids, time-outs) → ``backend.protocol``.
"""
