"""A typed, asynchronous Kafka client for administration.

Way of a request: a typed call of `requests` → `kafka_client` (which broker, which version, when to try again) →
`connection_pool` (a bounded number of connections per broker) → `broker_connection` (frames, correlation ids, time-
outs) → `backend.protocol`. `client_security`, `oauth`, `trust`: TLS and SASL of the connections. `gateway_errors`: its
errors.
"""
