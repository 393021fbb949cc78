"""A walk in which every object of the log and its coordinators is used at once, in any order.

Many defects need two of them: retention under an open transaction, a deletion during a fetch session, a commit of
offsets beside a pending one, a partition that is new to a session.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from highwater.conformance.cases.records.walks.test_mixed_reads import lookup, read_at_limits, session_changes
from highwater.conformance.cases.records.walks.test_mixed_writes import WITHOUT_ZSTD, mixed_writes, offset_around
from highwater.conformance.cases.support.group_walks.members import same_coordinator
from highwater.conformance.cases.support.group_walks.offset_walk import OffsetWalk
from highwater.conformance.cases.support.log_walks.choices import current_epochs, plain_batch
from highwater.conformance.cases.support.log_walks.reads import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    EpochLookup,
    Read,
    describe_producers,
    epoch_ends,
    fetch,
    follow,
    list_offsets,
    read_everything,
)
from highwater.conformance.cases.support.log_walks.senders import Sender
from highwater.conformance.cases.support.log_walks.sessions import SESSIONS_SINCE, SessionWalk
from highwater.conformance.cases.support.log_walks.walk import APPEND_TIME, Walk, compare
from highwater.conformance.cases.support.log_walks.writers import Classic
from highwater.conformance.cases.support.log_walks.writes import (
    ALL,
    LEADER,
    NO_REPLY,
    Deletion,
    Write,
    delete,
    produce,
)
from highwater.conformance.cases.transactions.test_mixed_transactions import verifies
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect
from highwater.conformance.models.batches import ABORT, COMMIT
from highwater.conformance.models.groups import DEAD, ClassicModel, GroupClient
from highwater.conformance.models.offsets import MANY_GROUPS, Commit
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.groups import DeleteGroupsRequest
from highwater.reference.wire.messages.offsets import DeleteRecordsRequest, OffsetForLeaderEpochRequest
from highwater.reference.wire.messages.transactions import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

LIMIT: Final = 1500
STABLE_SINCE: Final = 8
"""Version 7 can refuse pending offsets, too, but 2.8.2 takes a commit that it has refused for a pending one."""


class Everything:
    """Two topics, producers of every kind, a fetch session and a group of one walk; each step uses one of them."""

    def __init__(self, cluster: Cluster, seed: int, *, replicas: int | None = None) -> None:
        self.walk = Walk(cluster, seed, {}, {**APPEND_TIME, "max.message.bytes": str(LIMIT)}, replicas=replicas)
        self.senders = [Sender.create(self.walk) for _ in range(2)]
        self.writers = [Classic(self.walk, verified=verifies(self.walk)) for _ in range(2)]
        self.groups = [ClassicModel(name) for name in same_coordinator(cluster, 2)]
        self.offsets = OffsetWalk(cluster, cluster.coordinator(self.groups[0].group), *self.groups)
        self._session: SessionWalk | None = None

    @property
    def steps(self) -> list[Callable[[], None]]:
        """Return what can be done, as often as its weight."""
        weights = {
            self.write: 3, self.send: 3, self.transact: 6, self.end: 2, self.read: 3, self.read_in_session: 4,
            self.refuse_epoch: 1, self.look_up: 2, self.look_up_epochs: 1, self.delete: 2, self.describe: 1,
            self.end_again: 1, self.initialize: 1,
            self.commit: 2, self.commit_in_transaction: 3, self.fetch_stable: 2, self.delete_groups: 1,
        }  # fmt: skip
        return [step for step, weight in weights.items() for _ in range(weight)]

    def step(self) -> None:
        """Do one of them."""
        self.walk.random.choice(self.steps)()

    # -- writing -------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Produce valid and invalid batches without a producer."""
        acks = self.walk.random.choice((ALL, ALL, LEADER, NO_REPLY))
        if acks == NO_REPLY:
            writes = [Write(key, plain_batch(self.walk, (Compression.NONE,))) for key in self.walk.keys]
            produce(self.walk, writes, acks=acks)
        else:
            produce(self.walk, mixed_writes(self.walk, (*WITHOUT_ZSTD, Compression.ZSTD)), acks=acks)
        if acks != ALL:
            self.walk.await_ends()

    def send(self) -> None:
        """Send batches of idempotent producers, which repeat, skip and reuse sequence numbers."""
        keys = [key for key in self.walk.keys if self.walk.random.random() < 0.6]
        produce(self.walk, [self.walk.random.choice(self.senders).write(key) for key in keys])
        for sender in self.senders:
            sender.learn_epochs()

    def transact(self) -> None:
        """Add partitions to a transaction, or write in it."""
        writer = self.walk.random.choice(self.writers)
        if not writer.added or self.walk.random.random() < 0.2:
            unknown = [self.walk.random.choice(self.walk.unknown_keys)] if self.walk.random.random() < 0.1 else []
            writer.add(self.walk.random.sample(self.walk.keys, self.walk.random.randint(1, 4)) + unknown)
        elif self.walk.random.random() < 0.1:
            writer.write_without_id(writer.added)
        else:
            writer.write(writer.choose_keys())
        writer.describe()

    def end(self) -> None:
        """End a transaction that is open."""
        opened = [writer for writer in self.writers if writer.added]
        if opened:
            self._end(self.walk.random.choice(opened))

    def _end(self, writer: Classic) -> None:
        kind = self.walk.random.choice((ABORT, COMMIT))
        writer.end(kind)
        self._settle(writer, committed=kind == COMMIT)
        writer.describe()

    def _settle(self, writer: Classic, *, committed: bool) -> None:
        """End what was pending in the groups, and wait until their coordinator has the markers."""
        for group in self.groups:
            if writer.producer.id in group.offsets.pending:
                group.offsets.end_transaction(writer.producer.id, committed=committed)
                self.walk.cluster.eventually("the end of the pending offsets", partial(self._are_settled, group))

    def _are_settled(self, group: ClassicModel) -> bool:
        try:
            self.offsets.check(group)
            self._fetch_stable([group])
        except AssertionError:
            return False
        return True

    def end_again(self) -> None:
        """Send an EndTxn that ends nothing."""
        self.walk.random.choice(self.writers).end_again()

    def initialize(self) -> None:
        """Initialize a transactional producer again, which aborts its transaction."""
        writer = self.walk.random.choice(self.writers)
        writer.initialize()
        if not writer.added:
            self._settle(writer, committed=False)
        writer.describe()

    def delete(self) -> None:
        """Delete records before offsets near the start, the middle and the end, below every open transaction."""
        if self.walk.supports(DeleteRecordsRequest):
            follow(self.walk, READ_UNCOMMITTED)  # the timestamps that the broker chose are learnt from it
            keys = [key for key in self.walk.keys if self.walk.random.random() < 0.5]
            near = {key: min(offset_around(self.walk, key), self.walk.logs[key].stable) for key in keys}
            delete(self.walk, [Deletion(key, offset) for key, offset in near.items() if offset >= 0])

    # -- reading -------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Fetch at and beyond every limit."""
        follow(self.walk, READ_UNCOMMITTED)  # the sizes of stored batches are learnt from it
        read_at_limits(self.walk)

    def read_in_session(self) -> None:
        """Fetch what has changed in the session, or begin one."""
        if not self.walk.supports(FetchRequest, SESSIONS_SINCE):
            return
        broker, keys = self.walk.led_by_one()
        if self._session is None:
            isolation = self.walk.random.choice((READ_UNCOMMITTED, READ_COMMITTED))
            self._session = SessionWalk(self.walk, broker, by_id=False, isolation=isolation)
            self._session.begin([Read(key, self.walk.logs[key].start) for key in keys[:-1]])
        elif self.walk.random.random() < 0.1:
            self._session.end()
            self._session = None
        else:
            self._session.fetch(*session_changes(self.walk, self._session, keys))
            self._session = self._session if self._session.reads else None

    def refuse_epoch(self) -> None:
        """Fetch in another epoch of the session."""
        if self._session is not None:
            epoch = self._session.epoch + self.walk.random.choice((-1, 1, 5))
            if epoch > 0:
                self._session.refused(epoch, ErrorCode.INVALID_FETCH_SESSION_EPOCH)

    def look_up(self) -> None:
        """Look up times and special timestamps."""
        follow(self.walk, READ_UNCOMMITTED)
        isolation = self.walk.random.choice((READ_UNCOMMITTED, READ_COMMITTED))
        list_offsets(self.walk, [lookup(self.walk, key) for key in self.walk.keys], isolation=isolation)

    def look_up_epochs(self) -> None:
        """Look up the ends of leader epochs, with a current epoch that may be wrong."""
        if self.walk.supports(OffsetForLeaderEpochRequest, 2):
            choose = self.walk.random.choice
            ends = [
                EpochLookup(key, log.leader_epoch + choose((-1, 0, 1)), choose(current_epochs(log)))
                for key, log in self.walk.logs.items()
            ]
            epoch_ends(self.walk, [each for each in ends if each.epoch >= 0])

    def describe(self) -> None:
        """Describe the producers of all partitions."""
        follow(self.walk, READ_UNCOMMITTED)
        describe_producers(self.walk)

    # -- offsets of a group ----------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit offsets outside of any transaction: what is committed last is what counts."""
        group = self.walk.random.choice(self.groups)
        commits = self.offsets.random_commits(self.walk.random)
        version = self.walk.random.choice(self.offsets.commit_versions)
        self.offsets.commit(group, commits, GroupClient(), version)

    def commit_in_transaction(self) -> None:
        """Commit offsets in a transaction that has partitions, and compare that nothing is visible yet."""
        opened = [writer for writer in self.writers if writer.added]
        if not opened:
            return
        writer, group = self.walk.random.choice(opened), self.walk.random.choice(self.groups)
        existing = [key for key in self.offsets.keys if self.offsets.existing.has(*key)]
        offset, epoch = self.walk.random.choice((0, 5, 1 << 40)), self.walk.random.choice((-1, 5))
        keys = self.walk.random.sample(existing, 2)
        commits = [Commit(*key, offset=offset, leader_epoch=epoch, metadata="m") for key in keys]
        self.walk.step(f"AddOffsetsToTxn and TxnOffsetCommit of {writer.producer.id}")
        expect("error code of AddOffsetsToTxn", 0, writer.producer.add_offsets(group.group))
        reply = writer.producer.commit_offsets(group.group, _topics(commits))
        errors = {part.error_code for topic in reply.topics for part in topic.partitions}
        expect("error codes of TxnOffsetCommit", frozenset({0}), next(iter(errors)) if len(errors) == 1 else errors)
        group.offsets.store_pending(writer.producer.id, commits)
        self.offsets.check(group)

    def fetch_stable(self) -> None:
        """Fetch stable offsets of one group or of both: those that are pending are refused (KIP-447)."""
        self._fetch_stable(self.walk.random.sample(self.groups, self.walk.random.randint(1, 2)))

    def _fetch_stable(self, groups: Sequence[ClassicModel]) -> None:
        versions = [version for version in self.offsets.fetch_versions if version >= STABLE_SINCE]
        if versions:
            version, keys = self.walk.random.choice(versions), self.walk.random.choice((None, self.offsets.keys))
            chosen = groups if version >= MANY_GROUPS else groups[:1]
            self.offsets.fetch(dict.fromkeys(chosen, keys), version, stable=True)

    def delete_groups(self) -> None:
        """Delete groups without pending offsets; one without any may be there, since it was used."""
        if not self.walk.supports(DeleteGroupsRequest):
            return
        chosen = self.walk.random.sample(self.groups, self.walk.random.randint(1, 2))
        chosen = [group for group in chosen if not group.offsets.pending]
        what = self.walk.step("DeleteGroups")
        reply = self.offsets.broker.call(DeleteGroupsRequest(groups_names=tuple(group.group for group in chosen)))
        expect(
            f"{what}: groups", sorted(group.group for group in chosen), sorted(each.group_id for each in reply.results)
        )
        for group, result in (
            (group, each) for group in chosen for each in reply.results if each.group_id == group.group
        ):
            absent = frozenset[ErrorCode]() if group.offsets.stored else frozenset({ErrorCode.GROUP_ID_NOT_FOUND})
            compare(what, error_code=(frozenset({ErrorCode.NONE, *absent}), result.error_code))
            group.state = DEAD
            group.offsets.delete(group.offsets.stored)
            self.offsets.check(group)

    # -- the end -----------------------------------------------------------------------------------------------

    def compare_everything(self) -> None:
        """End all transactions, and compare all that is stored and known."""
        for writer in self.writers:
            if writer.added:
                self._end(writer)
        if self._session is not None:
            self._session.end()
        read_everything(self.walk)
        describe_producers(self.walk)
        fetch(self.walk, [Read(key, 0) for key in self.walk.unknown_keys])
        self.offsets.check_all()

    def restart(self) -> None:
        """Restart the leader of the first partition: all that was acknowledged is there afterwards."""
        leader = self.walk.topics[self.walk.keys[0]].leader_id
        self.walk.cluster.stop(leader)
        self.walk.cluster.start(leader)
        self.walk.follow_leaders()
        self.walk.restart()
        self.walk.await_replicas()
        for writer in self.writers:
            writer.reconnect()
        self.offsets.broker = self.walk.cluster.coordinator(self.groups[0].group)
        self._session = None


def _topics(commits: Sequence[Commit]) -> tuple[TxnOffsetCommitRequestTopic, ...]:
    found: dict[str, TxnOffsetCommitRequestTopic] = {}
    for each in commits:
        part = TxnOffsetCommitRequestPartition(
            partition_index=each.partition, committed_offset=each.offset, committed_leader_epoch=each.leader_epoch,
            committed_metadata=each.metadata,
        )  # fmt: skip
        before = found.get(each.topic, TxnOffsetCommitRequestTopic(name=each.topic))
        found[each.topic] = replace(before, partitions=(*before.partitions, part))
    return tuple(found.values())
