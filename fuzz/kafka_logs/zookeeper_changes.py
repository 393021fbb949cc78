"""What ZooKeeper held of each partition, in the order of the zxids: the same changes as `metadata_log` has for KRaft.

A znode gives each of them (ZkData.scala):

* `/controller_epoch`: a controller begins its term; `/controller` names the broker of the session that wrote it;
* `/brokers/ids/ID`, ephemeral: a broker registers, and its broker epoch is the zxid;
* `/brokers/topics/TOPIC`: the assigned replicas;
* `/brokers/topics/TOPIC/partitions/NUMBER/state`: leader, leader epoch, ISR and controller epoch, as Kafka wrote them.
  The znode's version is the partition epoch. The session that wrote names the broker that decided.

A broker whose session expired registers again without a restart. The first request of a process that starts creates
`/consumers`, which fails if it is there, and failed requests are in the log too (KafkaServer.initZkClient); the first
request of a new session of the same process is a read, which is not.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from highwater.fuzz.kafka_logs.folders import Partition, Seen
from highwater.fuzz.kafka_logs.metadata_log import Change, Lives, State
from highwater.fuzz.kafka_logs.metadata_records import NO_LEADER
from highwater.fuzz.kafka_logs.zookeeper_log import (
    CLOSE_SESSION,
    CREATE,
    DELETE,
    SET_DATA,
    ZOOKEEPER_LOG,
    Transaction,
    ZooKeeperLog,
    ZooKeeperOperation,
)

FIRST_REQUEST: Final = 1
"""The cxid of a session's first request; that which creates the session has 0."""


class ControllerNode(msgspec.Struct):
    """The content of `/controller`."""

    brokerid: int


class ClusterNode(msgspec.Struct):
    """The content of `/cluster/id`."""

    id: str


class TopicNode(msgspec.Struct):
    """The content of `/brokers/topics/TOPIC`."""

    partitions: dict[int, tuple[int, ...]]


class StateNode(msgspec.Struct):
    """The content of `/brokers/topics/TOPIC/partitions/NUMBER/state`."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class _ZooKeeperReplay:
    """Applies the transactions in order, and collects what happened to each partition."""

    def __init__(self, seen: Seen) -> None:
        self.lives, self.seen = Lives(log=ZOOKEEPER_LOG), seen
        self.replicas: dict[Partition, tuple[int, ...]] = {}
        self.states: dict[Partition, State] = {}
        self.brokers: dict[int, int] = {}
        """The broker of each session."""
        self.started: set[int] = set()
        """Sessions that a process began when it started."""
        self.registered: set[int] = set()

    def apply(self, transaction: Transaction) -> None:
        for operation in transaction.operations:
            for kinds, path, content, handle in HANDLERS:
                found = path.fullmatch(operation.path)
                if found and operation.kind in kinds:
                    self._handle(transaction, operation, found, content, handle)
        if transaction.cxid == FIRST_REQUEST:
            self.started.add(transaction.session)

    def _handle(
        self, at: Transaction, operation: ZooKeeperOperation, found: re.Match[str], content: Any, handle: "Handler"
    ) -> None:
        try:
            value = None if content is None else msgspec.json.decode(operation.data, type=content)
        except msgspec.DecodeError as error:
            self.seen.skipped[f"content of {operation.path} that cannot be decoded ({error})"] += 1
            return
        handle(self, at, operation, found, value)

    # -- controllers and brokers -------------------------------------------------------------------------

    def name_controller(self, at: Transaction, _: ZooKeeperOperation, __: re.Match[str], value: ControllerNode) -> None:
        self.brokers[at.session] = value.brokerid

    def claim(self, at: Transaction, _: ZooKeeperOperation, __: re.Match[str], epoch: int) -> None:
        """A controller begins a term; the first znode, with 0, is none."""
        if epoch > 0:
            self.seen.read["controller epochs"] += 1
            self._common(Change(at.zxid, "claim", self.brokers.get(at.session, NO_LEADER), epoch))

    def register(self, at: Transaction, _: ZooKeeperOperation, found: re.Match[str], __: None) -> None:
        node = self.brokers[at.session] = int(found[1])
        has_started = at.session in self.started
        if node in self.registered and has_started:
            self._common(Change(at.zxid, "register", node, at.zxid))
        self.seen.read["registrations" if has_started else "registrations after a session expired"] += 1
        self.registered.add(node)

    def close_session(self, at: Transaction, _: ZooKeeperOperation, __: re.Match[str], ___: None) -> None:
        """A broker that stops in order closes its session after its logs; that of a killed one expires."""
        node = self.brokers.get(at.session)
        if node is not None and at.cxid:
            self.seen.read["orderly stops"] += 1
            self._common(Change(at.zxid, "stop", node, at.zxid))

    def identify(self, _: Transaction, __: ZooKeeperOperation, ___: re.Match[str], value: ClusterNode) -> None:
        self.lives.cluster = value.id

    # -- topics and partitions ---------------------------------------------------------------------------

    def assign(self, _: Transaction, __: ZooKeeperOperation, found: re.Match[str], value: TopicNode) -> None:
        self.seen.read["assignments of topics"] += 1
        self.replicas |= {(found[1], number): replicas for number, replicas in value.partitions.items()}

    def change(self, at: Transaction, operation: ZooKeeperOperation, found: re.Match[str], value: StateNode) -> None:
        partition = (found[1], int(found[2]))
        self.seen.read["states of partitions"] += 1
        is_new, before = operation.kind == CREATE, self.states.get(partition)
        if is_new and before is not None:
            self.lives.deleted.add(partition)
        state = State(
            value.leader, value.leader_epoch, value.isr, (), self.replicas.get(partition, ()), operation.version,
            controller_epoch=value.controller_epoch,
        )  # fmt: skip
        leads = is_new or before is None or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch)
        self.states[partition] = state
        writer = self.brokers.get(at.session, NO_LEADER)
        changes = self.lives.changes.setdefault(partition, list(self.lives.common))
        changes.append(Change(at.zxid, "state", writer, state=state, leads=leads))

    def remove_topic(self, _: Transaction, __: ZooKeeperOperation, found: re.Match[str], ___: None) -> None:
        self.lives.deleted |= {partition for partition in self.lives.changes if partition[0] == found[1]}

    def remove_partition(self, _: Transaction, __: ZooKeeperOperation, found: re.Match[str], ___: None) -> None:
        self.lives.deleted.add((found[1], int(found[2])))

    def _common(self, change: Change) -> None:
        self.lives.common.append(change)
        for changes in self.lives.changes.values():
            changes.append(change)


WRITES: Final = (CREATE, SET_DATA)
PARTITION_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
Handler = Callable[[_ZooKeeperReplay, Transaction, ZooKeeperOperation, re.Match[str], Any], None]
HANDLERS: Final[tuple[tuple[tuple[str, ...], re.Pattern[str], Any, Handler], ...]] = (
    (WRITES, PARTITION_STATE, StateNode, _ZooKeeperReplay.change),
    (WRITES, TOPIC, TopicNode, _ZooKeeperReplay.assign),
    (WRITES, re.compile("/controller"), ControllerNode, _ZooKeeperReplay.name_controller),
    (WRITES, re.compile("/controller_epoch"), int, _ZooKeeperReplay.claim),
    (WRITES, re.compile("/cluster/id"), ClusterNode, _ZooKeeperReplay.identify),
    ((CREATE,), re.compile(r"/brokers/ids/(\d+)"), None, _ZooKeeperReplay.register),
    ((DELETE,), PARTITION_STATE, None, _ZooKeeperReplay.remove_partition),
    ((DELETE,), TOPIC, None, _ZooKeeperReplay.remove_topic),
    ((CLOSE_SESSION,), re.compile(""), None, _ZooKeeperReplay.close_session),
)
"""The kinds of operation, the path, the type of the content, and what handles them."""


def replay_zookeeper(log: ZooKeeperLog, seen: Seen) -> Lives:
    """Return the life of each partition that the transactions describe."""
    run = _ZooKeeperReplay(seen)
    for transaction in log.transactions:
        run.apply(transaction)
    run.lives.cut = log.cut
    return run.lives
