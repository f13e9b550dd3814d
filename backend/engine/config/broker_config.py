"""The settings of a broker under Kafka's names: what this engine reads, with Kafka 4.3's types, defaults and scopes.

A field's name is the setting's with ``_`` for ``.``; the table `BROKER_SETTINGS` is made from the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from backend.engine.config.fields import bool_field as _bool
from backend.engine.config.fields import double_field as _double
from backend.engine.config.fields import int_field as _int
from backend.engine.config.fields import list_field as _list
from backend.engine.config.fields import long_field as _long
from backend.engine.config.fields import password_field as _password
from backend.engine.config.fields import short_field as _short
from backend.engine.config.fields import text_field as _text
from backend.engine.config.setting_definition import DOUBLE_MAX, LONG_MAX, ConfigError, Setting, UpdateMode

_FOLLOWER_POOL_SIZE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker's settings as values. ``originals`` is the text they were read from (source STATIC_BROKER_CONFIG)."""

    # Identity and places
    node_id: int | None = _int(None, least=0, doc="id of this node, 1 and up")
    broker_id: int = _int(-1, doc="older name of node.id")
    process_roles: tuple[str, ...] | None = _list(
        None, one_of=("broker", "controller"), doc="broker, controller or both"
    )
    broker_rack: str | None = _text(None, doc="rack of this broker")
    log_dirs: tuple[str, ...] | None = _list(None, doc="folders of the partitions")
    log_dir: tuple[str, ...] = _list(("/tmp/kafka-logs",), doc="older name of log.dirs")
    metadata_log_dir: str | None = _text(None, doc="folder of __cluster_metadata; the first log dir by default")
    # Listeners
    listeners: tuple[str, ...] = _list(
        ("PLAINTEXT://:9092",), dynamic=UpdateMode.PER_BROKER, doc="NAME://host:port, ..."
    )
    advertised_listeners: tuple[str, ...] | None = _list(None, doc="what clients are told; listeners by default")
    listener_security_protocol_map: str = _text(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        dynamic=UpdateMode.PER_BROKER,
        doc="listener name to protocol",
    )
    inter_broker_listener_name: str | None = _text(None, doc="listener that other brokers use")
    controller_listener_names: tuple[str, ...] | None = _list(None, doc="listeners of the controller role")
    controller_quorum_voters: tuple[str, ...] = _list((), doc="id@host:port, ...")
    controller_quorum_bootstrap_servers: tuple[str, ...] = _list((), doc="host:port, ...")
    max_connections: int = _int(2**31 - 1, least=0, dynamic=True, doc="connections of this broker")
    max_connections_per_ip: int = _int(2**31 - 1, least=0, dynamic=True, doc="connections of one address")
    max_connections_per_ip_overrides: str = _text("", dynamic=True, doc="of single addresses: address:number, ...")
    connections_max_idle_ms: int = _long(600_000, doc="silence after which a connection is closed")
    socket_request_max_bytes: int = _int(104_857_600, least=1, doc="largest request frame")
    num_network_threads: int = _int(3, least=1, dynamic=True, doc="there are none: a node runs on one event loop")
    num_io_threads: int = _int(8, least=1, dynamic=True, doc="there are none: a node runs on one event loop")
    background_threads: int = _int(10, least=1, dynamic=True, doc="there are none: a node runs on one event loop")
    queued_max_requests: int = _int(500, least=1, doc="requests of one listener that may wait for an answer")
    request_timeout_ms: int = _int(30_000, doc="how long a request to another node may take")
    ebbline_metrics_listener: str | None = _text(
        None, doc="host:port of this broker's Prometheus metrics; none by default"
    )
    # Security; each of these, except the inter-broker ones, may stand under listener.name.<name>. for one listener
    security_inter_broker_protocol: str = _text(
        "PLAINTEXT",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="protocol between brokers where inter.broker.listener.name is not set",
    )
    ssl_protocol: str = _text("TLSv1.3", one_of=("TLSv1.2", "TLSv1.3"), doc="ssl.enabled.protocols decides")
    ssl_enabled_protocols: tuple[str, ...] = _list(
        ("TLSv1.2", "TLSv1.3"), one_of=("TLSv1.2", "TLSv1.3"), doc="TLS versions"
    )
    ssl_client_auth: str = _text(
        "none", one_of=("required", "requested", "none"), doc="whether clients must show a certificate"
    )
    ssl_endpoint_identification_algorithm: str = _text(
        "https", doc="https: a server's certificate must name its host; empty: it need not"
    )
    ssl_keystore_type: str = _text("JKS", one_of=("JKS", "PKCS12", "PEM"), dynamic=UpdateMode.PER_BROKER)
    ssl_keystore_location: str | None = _text(None, dynamic=UpdateMode.PER_BROKER)
    ssl_keystore_password: str | None = _password(dynamic=UpdateMode.PER_BROKER)
    ssl_keystore_key: str | None = _password(dynamic=UpdateMode.PER_BROKER)
    ssl_keystore_certificate_chain: str | None = _password(dynamic=UpdateMode.PER_BROKER)
    ssl_key_password: str | None = _password(dynamic=UpdateMode.PER_BROKER)
    ssl_truststore_type: str = _text("JKS", one_of=("JKS", "PKCS12", "PEM"), dynamic=UpdateMode.PER_BROKER)
    ssl_truststore_location: str | None = _text(None, dynamic=UpdateMode.PER_BROKER)
    ssl_truststore_password: str | None = _password(dynamic=UpdateMode.PER_BROKER)
    ssl_truststore_certificates: str | None = _password(dynamic=UpdateMode.PER_BROKER)
    sasl_enabled_mechanisms: tuple[str, ...] = _list(("GSSAPI",), doc="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512")
    sasl_mechanism_inter_broker_protocol: str = _text("GSSAPI", doc="mechanism between brokers")
    sasl_mechanism_controller_protocol: str = _text("GSSAPI", doc="mechanism from brokers to the controller")
    sasl_server_max_receive_size: int = _int(524_288, least=1, doc="largest frame before authentication")
    connections_max_reauth_ms: int = _long(0, doc="how long an authentication holds (KIP-368); 0: for ever")
    connection_failed_authentication_delay_ms: int = _int(
        100, least=0, doc="pause before a failed authentication is told and its connection closed"
    )
    # Quorum, registration
    controller_quorum_append_linger_ms: int = _int(25, least=0)
    controller_quorum_election_backoff_max_ms: int = _int(1000)
    controller_quorum_election_timeout_ms: int = _int(1000)
    controller_quorum_fetch_timeout_ms: int = _int(2000)
    controller_quorum_request_timeout_ms: int = _int(2000)
    controller_quorum_retry_backoff_ms: int = _int(20, least=0)
    controller_socket_timeout_ms: int = _int(30_000)
    broker_heartbeat_interval_ms: int = _int(2000, least=1, doc="pace of heartbeats to the controller")
    broker_session_timeout_ms: int = _int(9000, least=1, doc="silence after which a broker is fenced")
    initial_broker_registration_timeout_ms: int = _int(60_000, doc="how long a start may wait for the controller")
    controlled_shutdown_enable: bool = _bool(True, doc="hand leadership over before stopping")
    metadata_log_segment_bytes: int = _int(1 << 30, least=12)
    metadata_log_segment_ms: int = _long(604_800_000)
    metadata_log_max_record_bytes_between_snapshots: int = _long(20 << 20, least=1)
    metadata_log_max_snapshot_interval_ms: int = _long(3_600_000, least=0)
    metadata_max_idle_interval_ms: int = _int(500, least=0)
    metadata_max_retention_bytes: int = _long(100 << 20)
    metadata_max_retention_ms: int = _long(604_800_000)
    # Topics
    num_partitions: int = _int(1, least=1, doc="partitions of a topic that asks for the default")
    default_replication_factor: int = _int(1, least=1, doc="replication factor of a topic that asks for the default")
    auto_create_topics_enable: bool = _bool(True, doc="create a topic that a client asks for")
    delete_topic_enable: bool = _bool(True, doc="allow topics to be deleted")
    min_insync_replicas: int = _int(1, least=1, dynamic=True, doc="in-sync replicas that acks=all needs")
    unclean_leader_election_enable: bool = _bool(False, dynamic=True, doc="let a replica outside the ISR lead")
    unclean_recovery_timeout_ms: int = _int(
        60_000,
        least=0,
        doc="time that replicas which stopped uncleanly are waited for before those that are here may lead (KIP-966)",
    )
    auto_leader_rebalance_enable: bool = _bool(True, doc="move leadership back to preferred replicas")
    leader_imbalance_check_interval_seconds: int = _long(300, least=1)
    # Log
    message_max_bytes: int = _int(1_048_588, least=0, dynamic=True, doc="largest record batch")
    compression_type: str = _text(
        "producer", dynamic=True, one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    )
    compression_gzip_level: int = _int(-1, dynamic=True)
    compression_lz4_level: int = _int(9, least=1, maximum=17, dynamic=True)
    compression_zstd_level: int = _int(3, dynamic=True)
    log_segment_bytes: int = _int(1 << 30, least=1 << 20, dynamic=True)
    log_roll_ms: int | None = _long(None, dynamic=True)
    log_roll_hours: int = _int(168, least=1)
    log_roll_jitter_ms: int | None = _long(None, dynamic=True)
    log_roll_jitter_hours: int = _int(0, least=0)
    log_retention_ms: int | None = _long(None, least=-1, dynamic=True)
    log_retention_minutes: int | None = _int(None)
    log_retention_hours: int = _int(168)
    log_retention_bytes: int = _long(-1, dynamic=True)
    log_retention_check_interval_ms: int = _long(300_000, least=1)
    log_initial_task_delay_ms: int = _long(30_000, least=0)
    log_local_retention_ms: int = _long(-2, least=-2, dynamic=True)
    log_local_retention_bytes: int = _long(-2, least=-2, dynamic=True)
    log_cleanup_policy: tuple[str, ...] = _list(("delete",), dynamic=True, one_of=("compact", "delete"))
    log_cleaner_enable: bool = _bool(True, doc="compact topics with cleanup.policy=compact")
    log_cleaner_threads: int = _int(1, least=0, dynamic=True, doc="logs that are compacted at once")
    log_cleaner_dedupe_buffer_size: int = _long(
        128 << 20, dynamic=True, doc="memory of all cleaners for the keys of one round"
    )
    log_cleaner_io_buffer_size: int = _int(512 << 10, least=0, dynamic=True, doc="bytes that all cleaners read at once")
    log_cleaner_io_buffer_load_factor: float = _double(0.9, dynamic=True, doc="how full the memory for keys may get")
    log_cleaner_io_max_bytes_per_second: float = _double(
        DOUBLE_MAX, dynamic=True, doc="what all cleaners may read and write"
    )
    log_cleaner_backoff_ms: int = _long(15_000, least=0, dynamic=True, doc="pause when there is nothing to compact")
    log_cleaner_delete_retention_ms: int = _long(86_400_000, least=0, dynamic=True)
    log_cleaner_min_cleanable_ratio: float = _double(0.5, least=0, maximum=1, dynamic=True)
    log_cleaner_min_compaction_lag_ms: int = _long(0, least=0, dynamic=True)
    log_cleaner_max_compaction_lag_ms: int = _long(LONG_MAX, least=1, dynamic=True)
    log_index_size_max_bytes: int = _int(10 << 20, least=4, dynamic=True)
    log_index_interval_bytes: int = _int(4096, least=0, dynamic=True)
    log_flush_interval_messages: int = _long(LONG_MAX, least=1, dynamic=True)
    log_flush_interval_ms: int | None = _long(None, dynamic=True)
    log_flush_scheduler_interval_ms: int = _long(LONG_MAX)
    log_flush_offset_checkpoint_interval_ms: int = _int(60_000, least=0)
    log_flush_start_offset_checkpoint_interval_ms: int = _int(60_000, least=0)
    log_segment_delete_delay_ms: int = _long(60_000, least=0, dynamic=True)
    log_preallocate: bool = _bool(False, dynamic=True)
    log_message_timestamp_type: str = _text("CreateTime", dynamic=True, one_of=("CreateTime", "LogAppendTime"))
    log_message_timestamp_before_max_ms: int = _long(LONG_MAX, least=0, dynamic=True)
    log_message_timestamp_after_max_ms: int = _long(3_600_000, least=0, dynamic=True)
    log_dir_failure_timeout_ms: int = _long(30_000, least=1)
    num_recovery_threads_per_data_dir: int = _int(2, least=1, dynamic=True)
    producer_id_expiration_ms: int = _int(86_400_000, least=1, dynamic=True)
    # Replication
    replica_lag_time_max_ms: int = _long(30_000, doc="how long a replica may lag before it leaves the ISR")
    replica_fetch_max_bytes: int = _int(1 << 20, least=0)
    replica_fetch_response_max_bytes: int = _int(10 << 20, least=0)
    replica_fetch_wait_max_ms: int = _int(500)
    replica_fetch_min_bytes: int = _int(1)
    replica_fetch_backoff_ms: int = _int(1000, least=0, doc="pause of a partition whose fetch failed")
    replica_socket_timeout_ms: int = _int(30_000)
    replica_high_watermark_checkpoint_interval_ms: int = _long(5000)
    num_replica_fetchers: int = _int(1, dynamic=True)
    replica_selector_class: str | None = _text(
        None,
        one_of=(
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
        doc="RackAwareReplicaSelector sends consumers to a replica in their own rack (KIP-392)",
    )
    fetch_max_bytes: int = _int(57_671_680, least=1024)
    max_incremental_fetch_session_cache_slots: int = _int(1000, least=0)
    max_request_partition_size_limit: int = _int(2000, least=1)
    follower_fetch_last_tiered_offset_enable: bool = _bool(
        False, dynamic=True, doc="a new replica of a tiered topic starts at the last tiered offset (KIP-1023)"
    )
    follower_fetch_tiered_compat: str = _text(
        "kip",
        one_of=("kip", "kafka"),
        dynamic=True,
        doc="kafka: a fully tiered or emptied leader keeps new replicas out, a replica built from the remote tier "
        "knows no producers, and asking for the old replicas does not end a move, as in 4.3.1",
    )
    # Quotas
    quota_window_num: int = _int(11, least=1, doc="windows that clients' quotas are measured over")
    quota_window_size_seconds: int = _int(1, least=1)
    controller_quota_window_num: int = _int(11, least=1)
    controller_quota_window_size_seconds: int = _int(1, least=1)
    alter_log_dirs_replication_quota_window_num: int = _int(11, least=1)
    alter_log_dirs_replication_quota_window_size_seconds: int = _int(1, least=1)
    replication_quota_window_num: int = _int(11, least=1)
    replication_quota_window_size_seconds: int = _int(1, least=1)
    # Tiering
    remote_log_storage_system_enable: bool = _bool(False, doc="tiered storage on this broker")
    remote_log_storage_manager_class_name: str | None = _text(None)
    remote_log_storage_manager_class_path: str | None = _text(None)
    remote_log_storage_manager_impl_prefix: str = _text("rsm.config.")
    remote_log_metadata_manager_class_name: str = _text(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
    )
    remote_log_metadata_manager_class_path: str | None = _text(None)
    remote_log_metadata_manager_impl_prefix: str = _text("rlmm.config.")
    remote_log_metadata_manager_listener_name: str | None = _text(None)
    remote_log_metadata_custom_metadata_max_bytes: int = _int(128, least=0)
    remote_log_metadata_overlap: str = _text(
        "kip", one_of=("kip", "kafka"), doc="kafka: a replaced segment hides what only it holds, as 4.3.1 does"
    )
    remote_log_index_file_cache_total_size_bytes: int = _long(1 << 30, least=1, dynamic=True)
    remote_log_index_file_cache_ttl_ms: int = _long(900_000, least=-1)
    remote_log_manager_copier_thread_pool_size: int = _int(10, least=1, dynamic=True)
    remote_log_manager_expiration_thread_pool_size: int = _int(10, least=1, dynamic=True)
    remote_log_manager_follower_thread_pool_size: int = _int(_FOLLOWER_POOL_SIZE, least=1, dynamic=True)
    remote_log_manager_thread_pool_size: int = _int(2, least=1)
    remote_log_manager_task_interval_ms: int = _long(30_000, least=1)
    remote_log_manager_task_retry_backoff_ms: int = _long(500, least=1)
    remote_log_manager_task_retry_backoff_max_ms: int = _long(30_000, least=1)
    remote_log_manager_task_retry_jitter: float = _double(0.2, least=0, maximum=0.5)
    remote_log_reader_threads: int = _int(10, least=1, dynamic=True)
    remote_log_reader_max_pending_tasks: int = _int(100, least=1)
    remote_log_manager_copy_max_bytes_per_second: int = _long(LONG_MAX, least=1, dynamic=True)
    remote_log_manager_copy_quota_window_num: int = _int(11, least=1)
    remote_log_manager_copy_quota_window_size_seconds: int = _int(1, least=1)
    remote_log_manager_fetch_max_bytes_per_second: int = _long(LONG_MAX, least=1, dynamic=True)
    remote_log_manager_fetch_quota_window_num: int = _int(11, least=1)
    remote_log_manager_fetch_quota_window_size_seconds: int = _int(1, least=1)
    remote_fetch_max_wait_ms: int = _int(500, least=1, dynamic=True)
    remote_list_offsets_request_timeout_ms: int = _long(30_000, least=1, dynamic=True)
    remote_partition_remover_task_interval_ms: int = _long(
        3_600_000, least=1, doc="pace of KIP-405's partition remover"
    )
    # The product's own
    ebbline_cluster_id: str | None = _text(None, doc="cluster that a new data folder is made for")
    ebbline_quorum_acknowledged_dir: str | None = _text(
        None, doc="folder beside the log dirs where a voter notes how much of the metadata it has acknowledged"
    )
    ebbline_quorum_start_wait_ms: int = _int(
        10_000, least=0, doc="how long a voter waits after its start to hear every other one before a majority may lead"
    )
    ebbline_leader_start_wait_ms: int = _int(
        5_000,
        least=0,
        doc="how long a start of the whole cluster waits for brokers that were in sync before others lead",
    )
    ebbline_delete_vanished_topics: bool = _bool(
        False, doc="delete remote data of topics that this cluster does not know and nobody marked as deleted"
    )
    ebbline_remove_set_aside: tuple[str, ...] = _list(
        (),
        dynamic=UpdateMode.PER_BROKER,
        doc="names of set-aside replica folders (...-stray) that the broker removes for good",
    )
    ebbline_events_topic_replication_factor: int = _short(3, least=1, doc="replicas of __ebbline_events")
    # Groups and producers
    group_initial_rebalance_delay_ms: int = _int(3000)
    group_min_session_timeout_ms: int = _int(6000)
    group_max_session_timeout_ms: int = _int(1_800_000)
    group_max_size: int = _int(2**31 - 1, least=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = _list(
        ("classic", "consumer", "streams"), one_of=("classic", "consumer", "streams"), doc="protocols of groups"
    )
    group_consumer_session_timeout_ms: int = _int(45_000, least=1)
    group_consumer_min_session_timeout_ms: int = _int(45_000, least=1)
    group_consumer_max_session_timeout_ms: int = _int(60_000, least=1)
    group_consumer_heartbeat_interval_ms: int = _int(5000, least=1)
    group_consumer_min_heartbeat_interval_ms: int = _int(5000, least=1)
    group_consumer_max_heartbeat_interval_ms: int = _int(15_000, least=1)
    group_consumer_max_size: int = _int(2**31 - 1, least=1)
    group_consumer_assignors: tuple[str, ...] = _list(
        ("uniform", "range"), one_of=("uniform", "range"), doc="server-side assignors, the default first"
    )
    group_consumer_assignment_interval_ms: int = _int(
        1000, least=0, dynamic=True, doc="shortest time between two target assignments of a group"
    )
    group_consumer_min_assignment_interval_ms: int = _int(0, least=0)
    group_consumer_max_assignment_interval_ms: int = _int(15_000, least=1)
    group_consumer_migration_policy: str = _text(
        "bidirectional", one_of=("disabled", "downgrade", "upgrade", "bidirectional"),
        doc="which groups change between the classic and the consumer protocol while they live",
    )  # fmt: skip
    offset_metadata_max_bytes: int = _int(4096)
    offsets_commit_timeout_ms: int = _int(5000, least=1)
    offsets_load_buffer_size: int = _int(5 << 20, least=1)
    offsets_retention_check_interval_ms: int = _long(600_000, least=1)
    offsets_retention_minutes: int = _int(10_080, least=1)
    offsets_topic_num_partitions: int = _int(50, least=1)
    offsets_topic_replication_factor: int = _short(3, least=1)
    offsets_topic_segment_bytes: int = _int(100 << 20, least=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _int(10_000, least=1)
    transaction_max_timeout_ms: int = _int(900_000, least=1)
    transaction_partition_verification_enable: bool = _bool(True, dynamic=True)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _int(3_600_000, least=1)
    transactional_id_expiration_ms: int = _int(604_800_000, least=1)
    transaction_state_log_num_partitions: int = _int(50, least=1)
    transaction_state_log_replication_factor: int = _short(3, least=1)
    transaction_state_log_min_isr: int = _int(2, least=1)
    transaction_state_log_segment_bytes: int = _int(100 << 20, least=1)

    # Passwords are among them.
    originals: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """From a properties map; unknown names stay in ``originals``. Raises ConfigError."""
        values = _parsed(properties)
        return cls(**values, originals=dict(properties))

    def overlay(self, overrides: Mapping[str, str]) -> BrokerConfig:
        """With dynamic values laid over the static ones; a value that cannot be used is left out.

        The controller has validated every value before it became a record, so a bad one comes of a newer version.
        """
        usable = {}
        for name, text in overrides.items():
            setting = BROKER_SETTINGS.get(name)
            if setting is None or setting.scope is UpdateMode.READ_ONLY:
                continue
            try:
                usable[_field_name(name)] = setting.parse(text)
            except ConfigError:
                continue
        if not usable:
            return self
        current = {field.name: getattr(self, field.name) for field in fields(self)}
        return BrokerConfig(**{**current, **usable})

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Settings under a prefix (``rsm.config.``), with the prefix taken off."""
        return {name[len(prefix) :]: text for name, text in self.originals.items() if name.startswith(prefix)}

    @property
    def id(self) -> int:
        """node.id, or its older name."""
        return self.broker_id if self.node_id is None else self.node_id

    @property
    def remote_follower_pool_size(self) -> int:
        """remote.log.manager.follower.thread.pool.size, or its older name."""
        new, old = "remote.log.manager.follower.thread.pool.size", "remote.log.manager.thread.pool.size"
        size = self.remote_log_manager_follower_thread_pool_size
        renamed = old in self.originals and new not in self.originals and size == _FOLLOWER_POOL_SIZE
        return self.remote_log_manager_thread_pool_size if renamed else size

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """log.dirs, or its older name."""
        return self.log_dirs or self.log_dir

    @property
    def metadata_dir(self) -> str:
        """Folder that holds ``__cluster_metadata-0``."""
        return self.metadata_log_dir or self.data_dirs[0]


def _field_name(name: str) -> str:
    return name.replace(".", "_")


def _table() -> dict[str, Setting]:
    table = {}
    for declared in fields(BrokerConfig):
        if declared.name == "originals":
            continue
        name = declared.name.replace("_", ".")
        default: Any = declared.default
        table[name] = Setting(name=name, default=default, **declared.metadata)
    return dict(sorted(table.items()))


BROKER_SETTINGS: Final[dict[str, Setting]] = _table()


def _parsed(properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        _field_name(name): BROKER_SETTINGS[name].parse(text)
        for name, text in properties.items()
        if name in BROKER_SETTINGS
    }
