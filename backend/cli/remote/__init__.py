"""`ebbline remote`: the metadata topic of tiered storage, of any Kafka, and its segments against the remote storage.

``remote_commands`` declares the commands, ``topic_tools`` carries them out: ``topic_reader`` reads the topic,
``record_text`` writes its records as lines and JSON, ``segment_ledger`` compares segments with objects.
"""
