"""The cluster's metadata as one immutable value, and how records become it.

- `metadata_image`: the value (Kafka's MetadataImage, PartitionRegistration, BrokerRegistration).
- `replay`: records of `__cluster_metadata` applied to an image.
- `image_records`, `snapshot_images`: an image as records, and as the batches of a snapshot (KIP-630).
- `record_interning`: decodes records of many partitions that are alike only once.
"""
