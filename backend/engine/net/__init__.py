"""The engine's end of every connection: listeners that serve requests, and clients of other nodes.

``listener`` accepts, ``server_connection`` turns frames into handler calls and answers in order; ``peer_client`` is the
way to another node, on which stand the controller channel, the fetcher's leader endpoint, the metadata topic and the
event sink.
"""
