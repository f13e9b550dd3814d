"""Nodes register with the active controller.

- `broker_lifecycle`: register, heartbeat, unfence, controlled shutdown (Kafka's BrokerLifecycleManager).
- `controller_registration`: where each controller listens (Kafka's ControllerRegistrationManager, KIP-919).
- `producer_id_manager`: blocks of producer ids for a broker (Kafka's RPCProducerIdManager).
"""
