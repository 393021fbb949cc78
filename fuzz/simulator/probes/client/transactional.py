"""Transactional producers, as a probe uses them, and a model of a partition with transactions."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group, Member
from highwater.fuzz.simulator.probes.client.requests import BIG, errors_of, of_topics, request
from highwater.fuzz.simulator.probes.client.session import (
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    TRANSACTION,
    E,
    Session,
    record,
    stored,
)
from highwater.reference.wire.records import Record, build_batch

TIMEOUT_MS: Final = 60_000
BUSY: Final = frozenset({E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS})
V2_PRODUCE: Final = 12
V2_END: Final = 5
Key = tuple[str, int]
Offsets = dict[Key, int]


class Transactional:
    """A transactional producer: its id, epoch and sequence numbers. `v2`: transaction version 2 (KIP-890)."""

    def __init__(
        self, session: Session, suffix: str = "txn", *, v2: bool = False, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.session, self.name, self.v2, self.timeout_ms = session, f"{session.name}-{suffix}", v2, timeout_ms
        self.producer, self.epoch = -1, -1
        self.key = b"key"
        self.sequences: dict[Key, int] = {}
        self.written: list[tuple[str, int, Record]] = []  # of the open transaction

    async def patiently(self, send: Any) -> Any:
        """Repeat a request while the coordinator completes what was prepared before."""
        for _ in range(60):
            answer = await send()
            if not errors_of(answer) & BUSY:
                return answer
            await self.session.sleep(30)
        self.session.expect(False, f"{self.name} is answered with CONCURRENT_TRANSACTIONS for seconds")
        return answer

    async def ask(self, api: str, version: int = -1, **fields: Any) -> Any:
        """Return the answer of the coordinator to a request that may name the transactional id."""
        body = request(api, **fields)
        return await self.patiently(partial(self.session.ask_coordinator, self.name, TRANSACTION, body, version))

    def _identity(self, changes: dict[str, Any]) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer, "producer_epoch": self.epoch, **changes}

    async def init(self, producer: int = -1, epoch: int = -1) -> Any:
        """Send InitProducerId; return the answer, and take the producer id and epoch if there is no error."""
        fields = self._identity({"producer_id": producer, "producer_epoch": epoch})
        answer = await self.ask("InitProducerId", transaction_timeout_ms=self.timeout_ms, **fields)
        if answer.error_code == E.NONE:
            self.producer, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
            self.written.clear()
        return answer

    async def begin(self) -> "Transactional":
        """Take a producer id and epoch, which must succeed."""
        self.session.ok((await self.init()).error_code, f"InitProducerId of {self.name}")
        return self

    async def add(self, *partitions: Key) -> dict[Key, int]:
        """Return the errors of AddPartitionsToTxn."""
        fields = {f"v3_and_below_{name}": value for name, value in self._identity({}).items()}
        answer = await self.ask("AddPartitionsToTxn", v3_and_below_topics=of_topics(partitions), **fields)
        return {
            (topic.name, part.partition_index): part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below for part in topic.results_by_partition
        }  # fmt: skip

    async def added(self, *partitions: Key) -> None:
        """Add partitions, which must succeed; with `v2` nothing is sent."""
        if not self.v2:
            errors = await self.add(*partitions)
            self.session.equal(errors, dict.fromkeys(partitions, 0), "the errors of AddPartitionsToTxn")

    async def produce(self, topic: str, number: int, values: Sequence[bytes], **changes: Any) -> Any:
        """Return the answer to a transactional batch; it uses the next sequence numbers if there is no error."""
        where = topic, number
        fields: dict[str, Any] = {
            "producer_id": self.producer, "producer_epoch": self.epoch,
            "base_sequence": self.sequences.get(where, 0), "transactional": True, **changes,
        }  # fmt: skip
        new = [record(value, self.key, self.session.wall_ms) for value in values]
        version = V2_PRODUCE if self.v2 else 9
        batch = build_batch(new, **fields)
        send = partial(self.session.produce, topic, batch, number, version, transactional_id=self.name)
        answer = await self.patiently(send)
        if answer.error_code == E.NONE and not changes:
            self.sequences[where] = self.sequences.get(where, 0) + len(values)
            self.written += [(topic, number, stored(answer.base_offset + n, each)) for n, each in enumerate(new)]
        return answer

    async def write(self, topic: str, number: int, *values: bytes) -> None:
        """Write a batch, which must succeed."""
        answer = await self.produce(topic, number, values)
        self.session.ok(answer.error_code, f"a transactional batch to {topic}-{number}")

    async def end(self, *, commit: bool, version: int = 0, **changes: Any) -> Any:
        """Send EndTxn; return the answer, and take the new epoch of transaction version 2."""
        version = version or (V2_END if self.v2 else 3)
        answer = await self.ask("EndTxn", version, committed=commit, **self._identity(changes))
        if answer.error_code == E.NONE and not changes:
            self.written.clear()
            if version >= V2_END:
                self.producer, self.epoch = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
        return answer

    async def ended(self, *, commit: bool) -> list[tuple[str, int, Record]]:
        """End the transaction, which must succeed; return what it wrote."""
        written = list(self.written)
        self.session.ok((await self.end(commit=commit)).error_code, f"EndTxn of {self.name}")
        return written

    async def add_offsets(self, group: str) -> int:
        """Return the error of AddOffsetsToTxn."""
        return int((await self.ask("AddOffsetsToTxn", **self._identity({"group_id": group}))).error_code)

    async def commit_offsets(
        self, group: Group, offsets: Offsets, member: Member | None = None, **changes: Any
    ) -> set[int]:
        """Return the errors of TxnOffsetCommit."""
        parts = [(topic, {"partition_index": n, "committed_offset": offset}) for (topic, n), offset in offsets.items()]
        by = {} if member is None else {"generation_id": member.generation, "member_id": member.id}
        fields = {"topics": of_topics(parts), **self._identity(by), **changes}
        return errors_of(await self.patiently(partial(group.ask, "TxnOffsetCommit", 5 if self.v2 else 3, **fields)))

    async def committed_offsets(self, group: Group, offsets: Offsets, member: Member | None = None) -> None:
        """Commit offsets in the transaction, which must succeed."""
        if not self.v2:
            self.session.ok(await self.add_offsets(group.name), "AddOffsetsToTxn")
        errors = await self.commit_offsets(group, offsets, member)
        self.session.equal(errors, {0}, "the errors of TxnOffsetCommit")


class TransactionLog:
    """A model of one partition with transactions: what read_committed and read_uncommitted return of it."""

    def __init__(self, session: Session, topic: str, number: int = 0) -> None:
        self.session, self.topic, self.number = session, topic, number
        self.records: list[Record] = []
        self.aborted: set[int] = set()
        self.open: dict[str, int] = {}  # the first offset of each open transaction
        self.start = self.end = 0

    def wrote(self, producer: str, records: Sequence[Record]) -> None:
        """Note what an open transaction wrote."""
        self.records += records
        self.open.setdefault(producer, records[0].offset)
        self.end = records[-1].offset + 1

    def marked(self, producer: Transactional, written: Iterable[tuple[str, int, Record]], *, commit: bool) -> None:
        """Note the end of a transaction: a marker takes one offset."""
        if self.open.pop(producer.name, None) is None:
            return
        self.end += 1
        if not commit:
            here = (self.topic, self.number)
            self.aborted.update(each.offset for topic, number, each in written if (topic, number) == here)

    @property
    def stable(self) -> int:
        """Return the last stable offset."""
        return min(self.open.values(), default=self.end)

    async def check(self) -> None:
        """Check reads of both isolation levels from drawn offsets, and the ends (TXN-5 to TXN-7, TXN-22, TXN-29)."""
        session, where = self.session, f"{self.topic}-{self.number}"
        end, stable_end = (partial(session.offset, self.topic, LATEST, self.number, isolation) for isolation in (0, 1))
        await session.until(end, self.end, f"the end of {where}")
        session.equal(await stable_end(), self.stable, f"the last stable offset of {where} in ListOffsets")
        records = [r for r in self.records if r.offset >= self.start]
        everything = await session.read(self.topic, self.start, self.number)
        session.equal(_plain(everything), _plain(records), f"what read_uncommitted returns of {where}")
        visible = [r for r in records if r.offset < self.stable and r.offset not in self.aborted]
        starts = [r.offset for r in records if r.offset < self.stable]
        drawn = {session.one_of(*starts) for _ in range(4)} if starts else set()
        for start, limit in ((self.start, 1), *((start, BIG) for start in sorted({self.start, *drawn}))):
            found = await session.read(
                self.topic, start, self.number, isolation=READ_COMMITTED, partition_max_bytes=limit
            )
            expected = _plain([r for r in visible if r.offset >= start])
            session.equal(_plain(found), expected, f"what read_committed returns of {where} from {start}")
        for offset in (self.start, self.end):  # beyond the stable offset there is nothing, and no error
            data = await session.fetch(self.topic, offset, self.number, isolation=READ_COMMITTED)
            found_at = data.error_code, data.last_stable_offset
            session.equal(found_at, (0, self.stable), f"error and last stable offset of Fetch at {offset} of {where}")
        await self._check_times()

    async def _check_times(self) -> None:
        """ListOffsets by time with read_committed finds nothing at or after the last stable offset (LST-4)."""
        for timestamp in sorted({r.timestamp for r in self.records})[-2:]:
            offset = await self.session.offset(self.topic, timestamp, self.number, READ_COMMITTED)
            what = f"ListOffsets({timestamp}) returns {offset}, beyond {self.stable}"
            self.session.expect(offset < self.stable, what)
        offset = await self.session.offset(self.topic, MAX_TIMESTAMP, self.number)
        self.session.expect(offset < self.end, "ListOffsets(-3) returns an offset beyond the end")


def _plain(records: Sequence[Record]) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.value) for each in records]


async def write(producer: Transactional, logs: Sequence[TransactionLog], label: bytes, count: int = 0) -> None:
    """Write a drawn batch to each of some partitions."""
    session = producer.session
    for log in logs:
        if len(logs) > 1 and session.draw(3) == 0 and log is not logs[-1]:
            continue
        await producer.added((log.topic, log.number))
        before = len(producer.written)
        await producer.write(log.topic, log.number, *[label + b" %d" % n for n in range(count or 1 + session.draw(3))])
        log.wrote(producer.name, [each for _, _, each in producer.written[before:]])


async def finish(producer: Transactional, logs: Sequence[TransactionLog], *, commit: bool) -> None:
    """End the open transaction, and note it in the models."""
    written = await producer.ended(commit=commit)
    for log in logs:
        log.marked(producer, written, commit=commit)
