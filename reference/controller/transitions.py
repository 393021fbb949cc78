"""State tables of partitions and replicas in the controller (kafka-0.9-controller).

The text of a transition says what is written and sent. Deletion has its own replica states, since it may be halted.
Apache Kafka: PartitionStateMachine, ReplicaStateMachine.
"""

from enum import StrEnum
from typing import Final

from highwater.reference.state_table import StateTable

SOURCE: Final = "kafka-0.9-controller, management of partitions and replicas"


class PartitionStatus(StrEnum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaStatus(StrEnum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_P, _R = PartitionStatus, ReplicaStatus
_ELECTED: Final = "leader and ISR written; LeaderAndIsr to the replicas, UpdateMetadata to all"

PARTITION_TABLE: Final = StateTable(
    "partition",
    SOURCE,
    _P.NON_EXISTENT,
    {
        (_P.NON_EXISTENT, _P.NEW): "assignment read from the store",
        (_P.NEW, _P.ONLINE): "first live replica leads, live replicas are the ISR; " + _ELECTED,
        (_P.NEW, _P.OFFLINE): "no replica is alive",
        (_P.ONLINE, _P.ONLINE): "another leader or ISR; " + _ELECTED,
        (_P.ONLINE, _P.OFFLINE): "the leader failed, or the topic is being deleted",
        (_P.OFFLINE, _P.ONLINE): "a member of the ISR is alive again; " + _ELECTED,
        (_P.OFFLINE, _P.OFFLINE): "still no replica may lead",
        (_P.OFFLINE, _P.NON_EXISTENT): "topic deleted",
    },
)

_SENT: Final = "LeaderAndIsr to the replica, UpdateMetadata to all"
_STOPPED: Final = "StopReplica; removed from the ISR; LeaderAndIsr to the others, UpdateMetadata to all"

REPLICA_TABLE: Final = StateTable(
    "replica",
    SOURCE,
    _R.NON_EXISTENT,
    {
        (_R.NON_EXISTENT, _R.NEW): _SENT,
        (_R.NEW, _R.ONLINE): "assigned",
        (_R.ONLINE, _R.ONLINE): _SENT,
        (_R.OFFLINE, _R.ONLINE): _SENT,
        (_R.DELETION_INELIGIBLE, _R.ONLINE): _SENT,
        (_R.NEW, _R.OFFLINE): _STOPPED,
        (_R.ONLINE, _R.OFFLINE): _STOPPED,
        (_R.OFFLINE, _R.OFFLINE): _STOPPED,
        (_R.DELETION_INELIGIBLE, _R.OFFLINE): "the deletion is tried again; StopReplica",
        (_R.OFFLINE, _R.DELETION_STARTED): "StopReplica with deletion",
        (_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL): "the broker confirmed",
        (_R.DELETION_STARTED, _R.DELETION_INELIGIBLE): "the broker failed, or did not confirm",
        (_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT): "the state is removed",
    },
)
