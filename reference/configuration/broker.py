"""Configuration of a broker and of the metadata store, with Apache Kafka's names (dots become underscores)."""

from typing import Final, Literal

import msgspec

from highwater.reference.guards import Guards

ZOOKEEPER: Final = "zookeeper://"
"""The scheme of an external ZooKeeper as `metadata_store`."""
Truncation = Literal["kip320", "kip279", "kip101", "high_watermark"]
# Each truncation rule switches off one more guard than the rule before it (spec/hw_truncation).
GUARDS_OFF_BY_TRUNCATION: Final[dict[Truncation, tuple[str, ...]]] = {
    "kip320": (),
    "kip279": ("fence_stale_fetch",),
    "kip101": ("fence_stale_fetch", "truncate_to_common_epoch"),
    "high_watermark": ("fence_stale_fetch", "truncate_to_common_epoch", "truncate_by_epoch"),
}


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of one broker. Times are in milliseconds and sizes in bytes, unless the name says otherwise."""

    broker_id: int
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_port: int = 0  # the port that clients connect to, if a proxy is in between; 0: `port`
    metadata_store: str = "127.0.0.1:2181"
    log_dir: str = "data"
    cluster_id: str = "highwater"

    # replication
    truncation: Truncation = "kip320"
    isr_update: Literal["zookeeper", "alter_partition"] = "zookeeper"
    isr_lag: Literal["time", "messages_and_time"] = "time"
    replica_lag_time_max_ms: int = 10_000
    replica_lag_max_messages: int = 4_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_backoff_ms: int = 200
    high_watermark_checkpoint_interval_ms: int = 5_000
    log_flush_interval_ms: int = 1_000
    log_flush_interval_messages: int = (1 << 63) - 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    default_replication_factor: int = 1
    num_partitions: int = 1
    auto_create_topics_enable: bool = True

    # controller
    broker_rack: str | None = None
    replica_selector: Literal["leader", "rack_aware"] = "leader"
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_per_broker_percentage: int = 10
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3

    # fetch sessions
    max_incremental_fetch_session_cache_slots: int = 1_000
    fetch_session_eviction_ms: int = 120_000

    # log
    log_segment_bytes: int = 1 << 30
    log_index_interval_bytes: int = 4096
    log_index_size_max_bytes: int = 10 * 1024 * 1024
    log_roll_ms: int = 604_800_000
    log_retention_ms: int = 604_800_000
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_min_cleanable_ratio: float = 0.5
    message_max_bytes: int = 1_048_588
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"

    # sessions and requests
    metadata_store_session_timeout_ms: int = 6_000
    request_timeout_ms: int = 30_000
    socket_request_max_bytes: int = 100 * 1024 * 1024
    queued_max_request_bytes: int = 512 * 1024 * 1024
    max_connections: int = 4_000
    max_connections_per_ip: int = 4_000
    connections_max_idle_ms: int = 600_000

    # security: the same protocol for clients and between brokers; key files are PEM
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_enabled_mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    sasl_mechanism_inter_broker_protocol: str = "SCRAM-SHA-256"
    sasl_inter_broker_user: str = ""
    sasl_users: dict[str, str] = {}  # user = "password"
    connections_max_reauth_ms: dict[str, int] = {}  # by mechanism; the sessions of all others do not expire
    ssl_certfile: str = ""
    ssl_keyfile: str = ""
    ssl_cafile: str = ""
    ssl_client_auth: Literal["none", "required"] = "none"

    # groups
    offsets_topic_num_partitions: int = 4
    offsets_topic_replication_factor: int = 3
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 1_000
    group_version: Literal[0, 1] = 1  # the level of the feature group.version; 0: no consumer groups of KIP-848
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = (1 << 31) - 1
    group_consumer_assignors: tuple[Literal["uniform", "range"], ...] = ("uniform", "range")
    group_consumer_migration_policy: Literal["disabled", "upgrade", "downgrade", "bidirectional"] = "bidirectional"

    # producers and transactions
    add_partitions_to_txn_retry_backoff_ms: int = 20
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    producer_epoch_max: int = 32_767
    transaction_state_log_num_partitions: int = 4
    transaction_state_log_replication_factor: int = 3

    # operation
    metrics_port: int = 0
    log_format: Literal["text", "json"] = "text"

    guards_off: tuple[str, ...] = ()

    @property
    def guards(self) -> Guards:
        return Guards().without(*self.guards_off, *GUARDS_OFF_BY_TRUNCATION[self.truncation])


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the metadata store.

    `tick_ms` is the interval of session expiry checks; a log larger than `snapshot_bytes` is replaced by a snapshot.
    """

    host: str = "127.0.0.1"
    port: int = 2181
    data_dir: str = "store"
    cluster_id: str = "highwater"
    tick_ms: int = 250
    snapshot_bytes: int = 4 << 20
