"""The cluster's metadata: the controller that changes it, and the copy of it that each node follows.

- `image`: the metadata as one immutable value, its records, and replay of records into the next image.
- `commands`: pure functions: (image, request) → records and response.
- `quorum_controller`: the active controller: carries commands out, one after another (Kafka's QuorumController).
- `periodic_tasks`, `start_wait`, `broker_sessions`: what the active controller does without a request.
- `metadata`: a node's own copy of the metadata log: image, snapshots, and publication to the broker's parts.
- `registration`: brokers and controllers register with the active controller; blocks of producer ids.

A request becomes a command over the newest image, its records go through the metadata log, then into the image, and
only then is it answered. Nothing ever changes an image in place. (KIP-500, KIP-631)
"""
