"""The engine's end of every connection: listeners that serve requests, and clients of other nodes.

Serving: ``listener`` accepts, within ``connection_quotas``; ``server_connection`` turns frames into calls of handlers
(``client_request``) and sends responses in order; ``authentication`` is its SASL, ``request_throttle`` its quotas.

To other nodes: ``peer_client`` is one connection (``peer_security``, ``sasl_client``). On it stand
``peer_controller_channel`` (requests to the active controller) and ``cluster_client`` (to brokers), and on that one the
internal topics: ``internal_topic`` creates them, ``topic_producer`` appends, ``metadata_topic_client`` reads
`__remote_log_metadata`, ``event_publisher`` writes `__ebbline_events`.
"""
