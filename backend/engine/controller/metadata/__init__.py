"""A node's own copy of the metadata log: from its files to the parts of its broker.

- `node_metadata`: log, image and snapshots of one node, with a vote or without (Kafka's SharedServer).
- `image_loading`: the image at a start; `committed_image`: the image that follows the log as far as it is committed.
- `snapshotter`: when an image becomes a snapshot (Kafka's SnapshotGenerator).
- `metadata_loader`, `metadata_cache`: image after image to the broker's parts, and the newest of them.
- `topic_deletions`: partitions of deleted tiered topics until the remote tier has been informed.
"""
