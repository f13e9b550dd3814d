"""The embedded tiered-log engine: brokers that any Kafka client can talk to.

How a fetch travels: ``net`` → ``protocol/frames`` → ``apis/table`` → ``apis/fetch`` →
``replica/replica_manager`` → ``log/unified_log``, or, when the offset is no longer local,
``remote/manager/remote_read`` → ``remote/metadata/remote_log_metadata_cache`` →
``remote/storage/remote_storage_manager``; when data is not there yet,
``replica/purgatory`` holds the request; the answer returns the same way.

Imports only point down: cluster, broker, net, apis, coordinator, replica, controller, raft,
remote, log, metrics, config, ports, common.
"""
