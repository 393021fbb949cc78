"""What `__cluster_metadata` decided for each partition, in the order of its offsets.

A PartitionChangeRecord does not contain epochs: PartitionRegistration.merge increments the leader epoch if the record
names a leader, and the partition epoch always.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from highwater.fuzz.kafka_logs.folders import METADATA_LOG, BrokerFolder, Seen, read_records
from highwater.fuzz.kafka_logs.metadata_records import FENCE, NO_LEADER, NO_LEADER_CHANGE, UNFENCE, decode_metadata
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.records import BatchHeader, Record

LEADER_CHANGE: Final = 2
"""ControlRecordType.LEADER_CHANGE: a controller begins a term, the leader epoch of its batches."""
REGISTER: Final = "RegisterBrokerRecord"
MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class Entry:
    """A metadata record, or the beginning of a controller's term, with its offset and term."""

    offset: int
    term: int
    kind: str
    record: Any


@dataclass(frozen=True, slots=True)
class State:
    """A partition after a record. `eligible` are the brokers that may be elected: the ISR and the ELR (KIP-966).

    If the last of them restarts uncleanly, both are empty, and `last_eligible` may still lead (LastMemberLeads), or
    `last_known`: the broker that led when the ISR became empty. `controller_epoch` is only in ZooKeeper.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    last_eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    controller_epoch: int | None = None

    @property
    def eligible(self) -> tuple[int, ...]:
        return tuple(sorted({*self.isr, *self.elr})) or self.last_eligible


@dataclass(frozen=True, slots=True)
class Change:
    """An event that concerns a partition: `claim`, `register`, `fence`, `unfence`, `stop` of `node`, or `state`.

    The node of a `state` is the broker that wrote it, -1 if the log does not name it: then it is the last claimant.
    """

    offset: int
    what: str
    node: int
    epoch: int = 0
    state: State | None = None
    leads: bool = False


@dataclass(slots=True)
class Lives:
    """The life of each partition, by name, the log that has it, and the cluster's id if the log names it.

    `cut`: later changes than these may be missing.
    """

    log: str = METADATA_LOG
    cluster: str = ""
    cut: bool = False
    changes: dict[tuple[str, int], list[Change]] = field(default_factory=dict)
    common: list[Change] = field(default_factory=list)
    settings: dict[tuple[str, str], str] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)


def read_metadata(brokers: Sequence[BrokerFolder], seen: Seen) -> list[Entry]:
    """Return the records of the metadata log that a majority of the given copies has; count the others as skipped."""
    copies = {}
    for broker in brokers:
        if (broker.path / METADATA_LOG).is_dir():
            copies[broker.node] = list(read_records(broker.path / METADATA_LOG, seen))
    if not copies:
        return []
    by_length = sorted(
        copies.values(), key=lambda batches: [(b.partition_leader_epoch, b.last_offset) for b, _ in batches[-1:]]
    )
    longest = by_length[-1]
    if longest and longest[0][0].base_offset > 0:
        seen.skipped["beginning of the metadata log, which is only in a snapshot"] += 1
    stored = by_length[(len(by_length) - 1) // 2]
    known = {(header.base_offset, header.partition_leader_epoch) for header, _ in stored}
    committed = [batch for batch in longest if (batch[0].base_offset, batch[0].partition_leader_epoch) in known]
    uncommitted = sum(header.record_count for header, _ in longest[len(committed) :])
    seen.read["metadata records that no majority has"] += uncommitted
    if any(left[0].next_offset != right[0].base_offset for left, right in pairwise(committed)):
        seen.skipped["gap in the metadata log"] += 1
    return list(_entries(committed, seen))


def _entries(batches: Iterable[tuple[BatchHeader, list[Record]]], seen: Seen) -> Iterator[Entry]:
    for header, records in batches:
        yield from _registrations_first(list(_decoded(header, records, seen)))


def _registrations_first(entries: list[Entry]) -> list[Entry]:
    """Move each registration before the changes that it causes.

    If a broker was not stopped in order, the controller writes first how it leaves ISRs and ELRs, and then its
    registration, in one batch (ClusterControlManager.registerBroker).
    """
    ordered: list[Entry] = []
    for entry in entries:
        at = len(ordered)
        while entry.kind == REGISTER and at > 0 and ordered[at - 1].kind == "PartitionChangeRecord":
            at -= 1
        ordered.insert(at, replace(entry, offset=ordered[at].offset) if at < len(ordered) else entry)
    return ordered


def _decoded(header: BatchHeader, records: list[Record], seen: Seen) -> Iterator[Entry]:
    for record in records:
        if header.is_control:
            if record.key is not None and int.from_bytes(record.key[2:4], "big") == LEADER_CHANGE:
                leader = int.from_bytes((record.value or b"")[2:6], "big", signed=True)
                seen.read["LeaderChangeMessage"] += 1
                yield Entry(record.offset, header.partition_leader_epoch, "LeaderChangeMessage", leader)
            continue
        try:
            kind, decoded = decode_metadata(record.value or b"")
        except DecodeError as error:
            seen.skipped[f"metadata record: {error}"] += 1
            continue
        seen.read[kind] += 1
        if decoded is not None:
            yield Entry(record.offset, header.partition_leader_epoch, kind, decoded)


class _Replay:
    """Applies the records in order, and collects what happened to each partition."""

    def __init__(self, seen: Seen) -> None:
        self.lives, self.seen = Lives(), seen
        self.topics: dict[bytes, str] = {}
        self.states: dict[tuple[bytes, int], State] = {}
        self.registered: set[int] = set()

    def apply(self, entry: Entry) -> None:
        if entry.kind in HANDLERS:
            HANDLERS[entry.kind](self, entry, entry.record)

    def claim(self, entry: Entry, leader: int) -> None:
        self._common(Change(entry.offset, "claim", leader, entry.term))

    def register(self, entry: Entry, record: Any) -> None:
        if record.broker_id in self.registered:
            self._common(Change(entry.offset, "register", record.broker_id, record.broker_epoch))
        self.registered.add(record.broker_id)

    def change_registration(self, entry: Entry, record: Any) -> None:
        what = {FENCE: "fence", UNFENCE: "unfence"}.get(record.fenced)
        if what is not None:
            self._common(Change(entry.offset, what, record.broker_id, record.broker_epoch))
        if record.in_controlled_shutdown:
            self._common(Change(entry.offset, "stop", record.broker_id, record.broker_epoch))

    def create_topic(self, entry: Entry, record: Any) -> None:
        self.topics[record.topic_id] = record.name

    def configure(self, entry: Entry, record: Any) -> None:
        self.lives.settings[record.resource_name, record.name] = record.value or ""

    def create_partition(self, entry: Entry, record: Any) -> None:
        name = self._name(record)
        if name in self.lives.changes:
            self.lives.deleted.add(name)
        state = State(
            record.leader, record.leader_epoch, record.isr, record.eligible_leader_replicas or (), record.replicas,
            record.partition_epoch,
        )  # fmt: skip
        self.states[record.topic_id, record.partition_id] = state
        self.lives.changes[name] = [
            *self.lives.common,
            Change(entry.offset, "state", NO_LEADER, state=state, leads=True),
        ]

    def change_partition(self, entry: Entry, record: Any) -> None:
        before = self.states.get((record.topic_id, record.partition_id))
        if before is None:
            self.seen.skipped["PartitionChangeRecord of an unknown partition"] += 1
            return
        leads = record.leader != NO_LEADER_CHANGE
        state = replace(
            before,
            leader=record.leader if leads else before.leader,
            leader_epoch=before.leader_epoch + leads,
            isr=before.isr if record.isr is None else record.isr,
            elr=before.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
            replicas=before.replicas if record.replicas is None else record.replicas,
            partition_epoch=before.partition_epoch + 1,
            last_eligible=before.eligible,
            last_known=before.last_known if record.last_known_elr is None else record.last_known_elr,
        )
        self.states[record.topic_id, record.partition_id] = state
        change = Change(entry.offset, "state", NO_LEADER, state=state, leads=leads)
        self.lives.changes[self._name(record)].append(change)

    def remove_topic(self, entry: Entry, record: Any) -> None:
        topic = self.topics.get(record.topic_id)
        self.lives.deleted |= {name for name in self.lives.changes if name[0] == topic}

    def clear_elr(self, entry: Entry, record: Any) -> None:
        """Kafka does so when min.insync.replicas changes; the partition epoch stays."""
        for (topic, number), state in self.states.items():
            if state.elr and record.topic_name in {"", self.topics[topic]}:
                cleared = self.states[topic, number] = replace(state, elr=())
                change = Change(entry.offset, "state", NO_LEADER, state=cleared)
                self.lives.changes[self.topics[topic], number].append(change)

    def _name(self, record: Any) -> tuple[str, int]:
        return self.topics.get(record.topic_id, "?"), record.partition_id

    def _common(self, change: Change) -> None:
        self.lives.common.append(change)
        for changes in self.lives.changes.values():
            changes.append(change)


HANDLERS: Final[dict[str, Callable[[_Replay, Entry, Any], None]]] = {
    "LeaderChangeMessage": _Replay.claim,
    REGISTER: _Replay.register,
    "BrokerRegistrationChangeRecord": _Replay.change_registration,
    "TopicRecord": _Replay.create_topic,
    "ConfigRecord": _Replay.configure,
    "PartitionRecord": _Replay.create_partition,
    "PartitionChangeRecord": _Replay.change_partition,
    "RemoveTopicRecord": _Replay.remove_topic,
    "ClearElrRecord": _Replay.clear_elr,
}


def replay(entries: Iterable[Entry], seen: Seen) -> Lives:
    """Return the life of each partition that the records describe."""
    run = _Replay(seen)
    for entry in entries:
        run.apply(entry)
    return run.lives
