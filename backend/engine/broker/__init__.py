"""One node of a cluster, put together from its parts.

``node`` binds the listeners (``role_listeners``), opens the metadata log (``raft_manager``), makes the parts
(``broker_parts``) and the roles (``broker_server``, ``controller_server``), and only then starts them.
``broker_metadata_publisher`` carries metadata out on a broker's parts, ``peer_connections`` are its ways to other
nodes, ``remote_tier`` is its part of KIP-405.
``unclean_recovery`` with ``log_end_client`` (KIP-966) and ``partition_marker`` work for the active controller.
"""

from backend.engine.broker.node import Broker
from backend.engine.broker.start_errors import StartRefused

__all__ = ["Broker", "StartRefused"]
