"""One node of a cluster, put together from its parts."""

from backend.engine.broker.node import Broker
from backend.engine.broker.start_errors import StartRefused

__all__ = ["Broker", "StartRefused"]
