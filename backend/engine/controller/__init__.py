"""The cluster's metadata: image, commands that give records, replay of records, and the two ends that carry them.

Controller side: a request becomes a pure command over the newest image, its records go through the metadata log, then
into the image, and only then the answer leaves (`driver`). Broker side: `loader` follows the same log over the network
and publishes image after image; `lifecycle` registers the broker and keeps it alive. Nothing ever changes an image in
place. (KIP-500, KIP-631)
"""
