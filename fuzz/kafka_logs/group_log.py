"""What `__consumer_offsets` has of each consumer group with the classic protocol, in the order of the offsets.

A group record is written when the leader's SyncGroup has assigned the partitions, when the group becomes empty, and
when a static member returns: it has the generation, the leader, and of each member its subscription (with the owned
partitions and their generation, KIP-429 and KIP-792) and its assignment.  An offset record has neither member nor
generation.  The leader epoch of a batch identifies the coordinator: the leader of the partition in that epoch.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from highwater.fuzz.kafka_logs.folders import BrokerFolder, Partition, ReplicaFolder, Seen, read_records
from highwater.fuzz.kafka_logs.metadata_log import Change
from highwater.fuzz.kafka_logs.metadata_records import NO_LEADER
from highwater.reference.groups.records import (
    GROUP_KEY_VERSION,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    unpack_group,
    unpack_key,
)
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.messages.consumer_groups import TopicPartition, decode_assignment, decode_subscription
from highwater.reference.wire.records import BatchHeader, Record

OFFSETS_TOPIC: Final = "__consumer_offsets"
CONSUMER: Final = "consumer"
"""The protocol type of consumers; others, such as that of Kafka Connect, do not assign partitions."""
UNKNOWN_KEY: Final = "record of a group with another protocol than the classic one (KIP-848, 932, 1071)"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member in a group record; `claim` are the owned partitions of its subscription."""

    member_id: str
    instance_id: str = ""
    claim: tuple[str, ...] = ()
    claim_generation: int = -1
    assignment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The content of a group record."""

    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A record of a group: `stored`, or None for a tombstone; or the partitions `committed` since the entry before."""

    offset: int
    epoch: int
    coordinator: int
    stored: StoredGroup | None = None
    committed: tuple[str, ...] = ()


@dataclass(slots=True)
class GroupLife:
    """The entries of a group, the partition that has them, and what of the group is in no model, by reason."""

    group: str
    log: str
    entries: list[GroupEntry] = field(default_factory=list)
    gaps: Counter[str] = field(default_factory=Counter)

    def records(self) -> Iterator[StoredGroup]:
        """Yield the contents of the group records."""
        return (entry.stored for entry in self.entries if entry.stored is not None)


def read_groups(
    brokers: Sequence[BrokerFolder],
    partition: Partition,
    changes: Sequence[Change],
    replicas: Mapping[int, ReplicaFolder],
    seen: Seen,
) -> list[GroupLife]:
    """Return the life of each group in a partition of `__consumer_offsets`, up to the high watermark."""
    states = [change.state for change in changes if change.state is not None]
    isr = [replicas[node] for node in (states[-1].eligible if states else ()) if node in replicas]
    marks = [replica.high_watermark for replica in replicas.values()]
    committed = max([*marks, min((replica.end for replica in isr), default=0)], default=0)
    last = max(replicas, key=lambda node: (replicas[node].runs[-1:], replicas[node].end), default=None)
    folder = next((broker.path for broker in brokers if broker.node == last), None)
    if folder is None:
        return []
    log = f"{partition[0]}-{partition[1]}"
    run = _Reading(log, {state.leader_epoch: state.leader for state in states}, seen)
    expected = 0
    for header, records in read_records(folder / log, Seen()):  # read_replica has counted what is damaged
        if header.base_offset != expected or len(records) != header.next_offset - header.base_offset:
            seen.skipped[f"records that {log} lacks, deleted or compacted"] += 1
        expected = header.next_offset
        for record in records if not header.is_control else ():
            if record.offset >= committed:
                seen.read["group records above the high watermark"] += 1
                continue
            try:
                run.read(header, record)
            except DecodeError as error:
                seen.skipped[f"record of {log}: {error}"] += 1
    return list(run.lives.values())


class _Reading:
    """Collects the entries of each group; commits between two group records of one coordinator are one entry."""

    def __init__(self, log: str, leaders: Mapping[int, int], seen: Seen) -> None:
        self.log, self.leaders, self.seen = log, leaders, seen
        self.lives: dict[str, GroupLife] = {}

    def read(self, header: BatchHeader, record: Record) -> None:
        key = record.key or b""
        if int.from_bytes(key[:2], "big") > GROUP_KEY_VERSION:
            self.seen.skipped[UNKNOWN_KEY] += 1
            return
        found = unpack_key(key)
        assert found is not None
        life = self.lives.setdefault(found.group, GroupLife(found.group, self.log))
        epoch = header.partition_leader_epoch
        if epoch not in self.leaders:
            life.gaps[f"records of leader epoch {epoch}, which is not in the metadata log"] += 1
        coordinator = self.leaders.get(epoch, NO_LEADER)
        if not isinstance(found, OffsetCommitKey):
            self.seen.read["group records"] += 1
            stored = None if record.value is None else _stored(unpack_group(record.value), life)
            life.entries.append(GroupEntry(record.offset, epoch, coordinator, stored))
        elif record.value is None:
            self.seen.read["offsets that were deleted"] += 1
        elif header.is_transactional:
            life.gaps["offset commits of transactions, which are in no group model"] += 1
        else:
            self.seen.read["offset commits"] += 1
            partition = f"{found.topic}-{found.partition}"
            last = life.entries[-1] if life.entries else None
            before: tuple[str, ...] = ()
            if last is not None and last.committed and last.epoch == epoch:
                before = life.entries.pop().committed
            together = tuple(sorted({*before, partition}))
            life.entries.append(GroupEntry(record.offset, epoch, coordinator, None, together))


def _stored(value: GroupMetadataValue, life: GroupLife) -> StoredGroup:
    if value.protocol_type not in {"", CONSUMER}:
        life.gaps[f"group records of the protocol type {value.protocol_type}"] += 1
    members = tuple(_member(member) for member in value.members)
    return StoredGroup(value.generation, value.protocol or "", value.leader or "", members)


def _member(member: MemberMetadata) -> GroupMember:
    subscription = decode_subscription(member.subscription)
    assigned = decode_assignment(member.assignment).assigned_partitions if member.assignment else ()
    return GroupMember(
        member.member_id, member.group_instance_id or "", tuple(_names(subscription.owned_partitions)),
        subscription.generation_id, tuple(_names(assigned)),
    )  # fmt: skip


def _names(topics: Sequence[TopicPartition]) -> Iterator[str]:
    return (f"{topic.topic}-{number}" for topic in topics for number in topic.partitions)
