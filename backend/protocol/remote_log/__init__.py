"""Records of `__remote_log_metadata` (KIP-405), in reading order.

- ``segment_states``: the states of a remote segment and of a partition's deletion;
- ``remote_log_events``: the records as frozen values, and the reasons why one is unreadable;
- ``metadata_serde``: values to bytes and back (Kafka's `RemoteLogMetadataSerde`);
- ``generated_decoder``: the decoder for every legal shape, made from the message tables;
- ``canonical_layout``: byte positions of the fields in the shape that brokers write;
- ``column_batch``: many records at once, as columns;
- ``metadata_partitioner``: the partition of the topic that a user's partition belongs to.
"""
