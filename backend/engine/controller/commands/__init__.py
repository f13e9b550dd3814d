"""Commands: pure functions from the newest image and a request to metadata records and a response (KIP-500, KIP-631).

One module per subject. A command never changes anything: the driver writes the records to the metadata log, replays
them into the image, and then sends the response. What a request got wrong is an error code in its response; a
`KafkaError` is raised only where the whole request fails.
"""
