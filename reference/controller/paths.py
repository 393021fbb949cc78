"""Paths of the metadata store's nodes, as in Apache Kafka on ZooKeeper (kafka-0.8-principles)."""

from typing import Final

BROKERS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
