"""Transactional producers of a walk, with a model of what their coordinator knows of them.

`Classic` adds partitions itself and keeps its epoch. `Newer` is for transaction.version 2 (KIP-890), where Produce 12
adds a partition and every end of a transaction increments the epoch.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from highwater.conformance.cases.support.committed_offsets import OFFSETS_TOPIC
from highwater.conformance.cases.support.log_walks.senders import Sender
from highwater.conformance.cases.support.log_walks.walk import Key, Walk, answers, compare, grouped
from highwater.conformance.cases.support.log_walks.writes import Write, produce
from highwater.conformance.cases.support.transactions import NEW_END, NEW_PRODUCE, Transactional
from highwater.conformance.expectations import expect
from highwater.conformance.models.batches import ABORT, COMMIT, NONE, Batch
from highwater.reference.wire.errors import TRANSACTION_BUSY, ErrorCode
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

OF_CLIENTS: Final = 3
"""The newest version of AddPartitionsToTxn for clients."""
ABORTABLE_SINCE: Final = 11
"""First version of Produce that is answered with TRANSACTION_ABORTABLE (KIP-890)."""
FENCED_SINCE, INIT_FENCED_SINCE = 2, 4
"""First versions of EndTxn and InitProducerId that are answered with PRODUCER_FENCED (KIP-588)."""
KNOWN_SINCE: Final = 3
"""First version of InitProducerId with a producer id and an epoch (KIP-360)."""
COMPLETE: Final = {ABORT: "CompleteAbort", COMMIT: "CompleteCommit"}


@dataclass(frozen=True, slots=True)
class Addition:
    """A part of AddPartitionsToTxn."""

    key: Key


class TransactionWriter(ABC):
    """A transactional producer; `added` are the partitions of its open transaction."""

    newer = False

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.producer = Transactional.initialize(walk.cluster)
        self.sender = Sender(walk, self.producer.producer_id, self.producer.epoch)
        self.added: list[Key] = []
        self.state = "Empty"
        self._written: dict[Key, list[Batch]] = {}

    def reconnect(self) -> None:
        """Find the coordinator again, after a broker was stopped."""
        self.producer = self.producer.reconnect()

    # -- writing -------------------------------------------------------------------------------------------

    def write(self, keys: Sequence[Key]) -> None:
        """Send a Produce with a batch for each partition: the next one, a repeated one, or one that is refused."""
        version = self._version()
        writes = [self._write(key, version) for key in keys]
        produce(self.walk, writes, version=version, transactional_id=self.producer.id)

    def write_without_id(self, keys: Sequence[Key]) -> None:
        """Send transactional batches in a Produce without transactional id, which is refused as a whole."""
        refused = frozenset({ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
        produce(
            self.walk, [Write(key, self.sender.next_batch(key, transactional=True), errors=refused) for key in keys],
            version=self._version(),
        )  # fmt: skip

    @abstractmethod
    def _version(self) -> int:
        """Choose a version of Produce."""

    def _write(self, key: Key, version: int) -> Write:
        batch, kind, random = (
            self.sender.next_batch(key, transactional=True),
            self.walk.random.random(),
            self.walk.random,
        )
        written = self._written.setdefault(key, [])
        if kind < 0.2 and written:
            batch = random.choice(written[-7:])
        elif kind < 0.27 and written:
            batch = replace(batch, sequence=batch.sequence + random.choice((1, 100)))
        elif kind < 0.32 and written:
            batch = replace(batch, transactional=False)
        else:
            written.append(batch)
        return Write(key, batch)

    # -- ending --------------------------------------------------------------------------------------------

    def end(self, kind: int) -> None:
        """End the transaction, wait until it is complete in all partitions, and begin another."""
        version = self.walk.version(EndTxnRequest, *((NEW_END, NEW_END) if self.newer else (0, NEW_END - 1)))
        self.walk.step(f"EndTxn v{version} of {self.producer.id}: {'commit' if kind else 'abort'}")
        self.producer.end(commit=bool(kind), version=version)
        if self.newer:
            expect(
                "producer id and epoch of EndTxn", (self.sender.producer_id, self.sender.epoch + 1), self._identity()
            )
        self.sender.epoch = self.producer.epoch
        for key in self.added:
            self.walk.logs[key].end_transaction(self.sender.producer_id, self.sender.epoch, kind)
        self.added, self._written, self.state = [], {}, COMPLETE[kind]
        self.walk.await_ends(stable=True)
        self._await_completion()

    def _identity(self) -> tuple[int, int]:
        return self.producer.producer_id, self.producer.epoch

    def _await_completion(self) -> None:
        """Wait until the coordinator has noted the markers; before, it answers with CONCURRENT_TRANSACTIONS."""
        if self.walk.supports(DescribeTransactionsRequest):
            completed = f"state {self.state} of {self.producer.id}"
            self.walk.cluster.eventually(completed, lambda: self._described().transaction_state == self.state)

    # -- the coordinator -----------------------------------------------------------------------------------

    def _described(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=(self.producer.id,))
        (found,) = self.producer.coordinator.call(request).transaction_states
        return found

    def describe(self) -> None:
        """Compare what DescribeTransactions returns, if the broker advertises it."""
        if not self.walk.supports(DescribeTransactionsRequest):
            return
        what, found = self.walk.step("DescribeTransactions"), self._described()
        topics = sorted(
            (topic.topic, index) for topic in found.topics for index in topic.partitions if topic.topic != OFFSETS_TOPIC
        )
        compare(
            what, error_code=(0, found.error_code), transactional_id=(self.producer.id, found.transactional_id),
            state=(self.state, found.transaction_state), producer_id=(self.sender.producer_id, found.producer_id),
            epoch=(self.sender.epoch, found.producer_epoch), partitions=(tuple(sorted(self.added)), tuple(topics)),
            timeout=(self.producer.timeout_ms, found.transaction_timeout_ms),
        )  # fmt: skip


class Classic(TransactionWriter):
    """A producer that adds partitions with AddPartitionsToTxn.

    `verified`: the broker refuses batches to partitions that were not added (KIP-890).
    """

    def __init__(self, walk: Walk, *, verified: bool) -> None:
        super().__init__(walk)
        self.verified = verified
        self._last_epoch = NONE

    def add(self, keys: Sequence[Key]) -> None:
        """Add partitions; if one of them does not exist, none is added."""
        parts = [Addition(key) for key in keys]
        version = self.walk.version(AddPartitionsToTxnRequest, 0, OF_CLIENTS)
        what = self.walk.step(f"AddPartitionsToTxn v{version}")
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.producer.id, v3_and_below_producer_id=self.sender.producer_id,
            v3_and_below_producer_epoch=self.sender.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(part.key[1] for part in of_topic))
                for name, of_topic in grouped(parts).items()
            ),
        )  # fmt: skip
        reply = self.walk.cluster.eventually("AddPartitionsToTxn to be possible", lambda: self._ready(request, version))
        found = [
            ((topic.name, result.partition_index), result.partition_error_code)
            for topic in reply.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
        all_known = all(key in self.walk.logs for key in keys)
        for part, error in answers(what, parts, found):
            wanted = 0 if all_known else ErrorCode.OPERATION_NOT_ATTEMPTED
            if part.key not in self.walk.logs:
                wanted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            compare(f"{what}, partition {self.walk.show(part.key)}", error_code=(wanted, error))
        if all_known:
            self.added += [key for key in keys if key not in self.added]
            self.state = "Ongoing"

    def end_again(self) -> None:
        """Send EndTxn without an open transaction, or with another epoch or id: what has ended stays as it ended."""
        version, commits = self.walk.version(EndTxnRequest, 0, NEW_END - 1), self.walk.random.random() < 0.5
        step, error = self.walk.random.choice(((0, 0), (1, 0), (-1, 0), (0, 1)))
        producer_id, epoch = self.sender.producer_id + error, self.sender.epoch + step
        if epoch < 0 or (step == error == 0 and self.added):
            return
        what = self.walk.step(f"EndTxn v{version} of {self.producer.id} in {self.state}: {commits=}")
        request = EndTxnRequest(
            transactional_id=self.producer.id, producer_id=producer_id, producer_epoch=epoch, committed=commits
        )
        wanted = 0 if self.state == COMPLETE[COMMIT if commits else ABORT] else ErrorCode.INVALID_TXN_STATE
        if step:
            wanted = ErrorCode.PRODUCER_FENCED if version >= FENCED_SINCE else ErrorCode.INVALID_PRODUCER_EPOCH
        if error:
            wanted = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        compare(what, error_code=(wanted, self.producer.coordinator.call(request, version).error_code))

    def initialize(self) -> None:
        """Send InitProducerId again, which aborts an open transaction; with the id and epoch since KIP-360."""
        knows = not self.added and self.walk.supports(InitProducerIdRequest, KNOWN_SINCE)
        names = [
            "nothing",
            "nothing",
            *(("its own", "its own", "its last", "another epoch", "another id") if knows else ()),
        ]
        named = self.walk.random.choice(names)
        version = self.walk.version(InitProducerIdRequest, 0 if named == "nothing" else KNOWN_SINCE)
        producer_id, epoch = {
            "nothing": (NONE, NONE), "its own": self._identity(),
            "its last": (self.producer.producer_id, self._last_epoch),
            "another epoch": (self.producer.producer_id, self.sender.epoch + 7),
            "another id": (self.producer.producer_id + 1, self.sender.epoch),
        }[named]  # fmt: skip
        if named == "its last" and epoch == NONE:
            return
        is_fenced = named.startswith("another")
        before, what = self.sender.epoch, self.walk.step(f"InitProducerId v{version} of {self.producer.id}: {named}")
        reply = self.producer.init(version, producer_id=producer_id, producer_epoch=epoch)
        fenced = ErrorCode.PRODUCER_FENCED if version >= INIT_FENCED_SINCE else ErrorCode.INVALID_PRODUCER_EPOCH
        compare(what, error_code=(fenced if is_fenced else 0, reply.error_code))
        if is_fenced:
            return
        rise = 2 if self.added else 0 if named == "its last" else 1
        compare(what, id_and_epoch=((self.sender.producer_id, before + rise), self._identity()))
        self._last_epoch = {"its own": before, "its last": epoch}.get(named, NONE)
        self._abort_by_coordinator(before + 1)
        self.sender.epoch, self._written, self.state = before + rise, {}, "Empty"

    def _abort_by_coordinator(self, epoch: int) -> None:
        """Note the markers of this epoch, with which the coordinator has aborted what was open."""
        for key in self.added:
            self.walk.logs[key].end_transaction(self.sender.producer_id, epoch, ABORT)
        if self.added:
            self.added = []
            self.walk.await_ends(stable=True)

    def _ready(self, request: AddPartitionsToTxnRequest, version: int) -> Any:
        reply = self.producer.coordinator.call(request, version)
        errors = [
            result.partition_error_code
            for topic in reply.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
        return None if any(error in TRANSACTION_BUSY for error in errors) else reply

    def _version(self) -> int:
        return self.walk.version(ProduceRequest, 0, ABORTABLE_SINCE)

    def _write(self, key: Key, version: int) -> Write:
        if key in self.added:
            return super()._write(key, version)
        error = ErrorCode.TRANSACTION_ABORTABLE if version >= ABORTABLE_SINCE else ErrorCode.INVALID_TXN_STATE
        return Write(key, self.sender.next_batch(key, transactional=True), errors=frozenset({error}))

    def choose_keys(self) -> list[Key]:
        """Return partitions to write to: of the transaction, and one that is not if the broker refuses that."""
        keys = [key for key in self.added if self.walk.random.random() < 0.7]
        others = [key for key in self.walk.keys if key not in self.added]
        if self.verified and others and self.walk.random.random() < 0.3:
            keys.append(self.walk.random.choice(others))
        return keys


class Newer(TransactionWriter):
    """A producer whose Produce adds partitions (transaction.version 2)."""

    newer = True

    def _version(self) -> int:
        return self.walk.version(ProduceRequest, NEW_PRODUCE)

    def _write(self, key: Key, version: int) -> Write:
        if key not in self.added:
            self.added.append(key)
            self.state = "Ongoing"
            return Write(key, self._first(key))
        return super()._write(key, version)

    def _first(self, key: Key) -> Batch:
        batch = self.sender.next_batch(key, transactional=True)
        self._written.setdefault(key, []).append(batch)
        return batch
