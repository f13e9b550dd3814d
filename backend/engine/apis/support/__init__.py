"""Functions that several API modules share, in reading order.

- ``forwarding``: requests that brokers send on to the controller, and commands on the node that has it;
- ``leader_hint``: the leader of a partition, beside NOT_LEADER_OR_FOLLOWER (KIP-951);
- ``response_budget``: the bytes that one response may have;
- ``authorized_operations``: the bit fields of KIP-430;
- ``auto_topic_creation``: topics that are created because clients ask for them;
- ``broker_loggers``: log levels as configs of the resource BROKER_LOGGER (KIP-412).
"""
