"""One node of a cluster, put together from its parts."""

from backend.engine.broker.node import Broker, StartRefused

__all__ = ["Broker", "StartRefused"]
