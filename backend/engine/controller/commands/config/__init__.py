"""Dynamic settings (Kafka's ConfigurationControlManager).

- `configuration_control`: AlterConfigs and IncrementalAlterConfigs → ConfigRecord.
- `topic_settings`, `broker_settings`, `resource_settings`: whether the values of one resource may stand together.
- `min_isr`: `min.insync.replicas` where the cluster keeps eligible leader replicas (KIP-966).
"""
