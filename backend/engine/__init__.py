"""The embedded tiered-log engine: brokers that any Kafka client can talk to.

How a fetch travels: ``net/server_connection`` → ``apis/fetch`` → ``replica/fetch_reads`` →
``replica/partition_reads`` → ``log/unified_log``. An offset that is no longer local goes on by
``replica/remote_reads`` → ``remote/manager`` (which finds the segment in ``remote/metadata``) → ``remote/storage``.
A fetch whose data is not there yet waits in ``replica/purgatory``. The response returns the same way.

Each layer imports only those below it:

- ``cluster``: several nodes in one process; ``broker``: one node and its roles, made and started in order;
- ``net``: listeners, and clients of other nodes; ``apis``: a handler for each of Kafka's APIs;
- ``coordinator``: groups and transactions; ``replica``: leaders, followers, waiting requests;
- ``controller``: commands that change metadata, and its image; ``raft``: the log of the metadata quorum (KIP-595);
- ``remote``: the remote tier (KIP-405); ``log``: one replica's files;
- ``metrics``, ``config``, ``ports`` (the operating system), ``common``.
"""
