"""Search the logs of one partition that explain all replies about it.

A log is a dense list of records and control markers. All of it is committed at the end of the history; a reply proves
that a part was committed by the time of the reply. The entries are appended in their order, so a log is possible if
the latest invocation among the entries up to an offset is before the first proof of that offset. Leader epochs add
another latest time: a record of an epoch is appended before a leader of a larger epoch answers.

A guarantee is read in two ways. The strict one has what every right cluster and client do; the lenient one also
permits what Kafka leaves open: repeated control markers, duplicates if the producer epoch is not known to have stayed
the same, an acknowledgement by a later leader than wrote the record, and ends that were read at different times.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from highwater.reports.tests.worlds.operations import Key, Read, Send, Transaction

Entry = Send | Transaction
"""A record, or the marker of a transaction."""
Log = tuple[Entry, ...]
GAP: Final = Transaction("", 0)
"""The entry at an offset of which nothing is known, if the log need not be dense."""
STEPS_AT_MOST: Final = 5_000
"""Of one search, about half a second."""


class TooManyLogs(Exception):
    """The history is too large for the search."""


@dataclass
class World:
    """What is assumed while one partition is searched."""

    key: Key
    outcomes: Mapping[Any, str]
    transactions: Mapping[Any, Transaction]
    lenient: bool
    dense: bool
    """Each offset has a record or a known marker; otherwise anything that no read returns may be at an offset."""
    idempotent: bool

    def visible(self, entry: Entry, *, committed: bool) -> bool:
        """Return whether a read of this isolation returns the entry."""
        if isinstance(entry, Transaction):
            return False
        return not committed or entry.txn is None or self.outcomes[entry.txn] == "commit"

    def earliest(self, entry: Entry) -> int:
        """Return the earliest time at which the entry is appended."""
        if isinstance(entry, Send):
            return entry.invoked
        added = entry.touched.get(self.key, entry.began)
        if self.outcomes.get(entry.name) == "commit":
            return max(added, min(entry.requested("commit", "ok", "info")))
        return max(added, min([] if self.lenient else entry.requested("abort", "ok"), default=added))

    def single(self, send: Send) -> bool:
        """Return whether the record is in the log at most once."""
        same_epoch = send.producer_id is not None and send.order is not None
        return send.txn is not None or (self.idempotent and (same_epoch or not self.lenient))

    def precedes(self, first: Send, second: Send) -> bool:
        """Return whether `first` must have the smaller offset, by the order of one producer."""
        same_producer = first.producer_id is not None and first.producer_id == second.producer_id
        if self.idempotent and same_producer and first.order is not None and second.order is not None:
            return first.order < second.order
        same_process = first.process == second.process and first.invoked < second.invoked
        if first.txn is not None and second.txn is not None:
            one, two = self.transactions[first.txn], self.transactions[second.txn]
            same_id = one.transactional_id is not None and one.transactional_id == two.transactional_id
            return same_process if one is two else same_id and one.began < two.began
        return same_process and self.idempotent and not self.lenient and first.producer_id == second.producer_id


@dataclass
class Proof:
    """A reply by which everything below `end` is committed, and all transactions below `stable` decided."""

    returned: float
    leader_epoch: int | None
    end: int
    stable: int = 0


class LogSearch:
    """A search; `obstacle` is the length of the longest log tried, and why it does not explain the replies."""

    def __init__(self, world: World, sends: list[Send], reads: list[Read]) -> None:
        self.world, self.sends, self.reads = world, sends, reads
        self.obstacle = -1, ""
        self.steps_left = STEPS_AT_MOST if world.dense else STEPS_AT_MOST // 20
        ends = [(send.offset + 1, send.deadline) for send in sends if send.offset is not None]
        ends += [(max(read.end, read.stable_end), read.returned) for read in reads]
        self.end = max((end for end, _ in ends), default=0)
        self.deadlines = [min(time for end, time in ends if end > offset) for offset in range(self.end)]
        self.markers = [
            txn for txn in world.transactions.values()
            if world.key in txn.touched and world.outcomes[txn.name] != "open"
        ]  # fmt: skip

    def logs(self, log: Log = (), latest: int = 0) -> Iterator[Log]:
        """Yield the logs that begin with `log` and explain the replies; `latest` is the last time of an append."""
        offset = len(log)
        self.steps_left -= 1
        if self.steps_left < 0:
            raise TooManyLogs
        if offset >= self.end and all(send in log for send in self.sends if send.acked):
            why = _Check(self.world, self.reads, log).obstacle()
            if not why:
                yield log
            self._note(offset + 1, why)
        for entry in self._candidates(log):
            time = max(latest, self.world.earliest(entry))
            if time > self._deadline(offset, entry, log):
                self._note(offset, f"what may be at offset {offset} was appended later than a reply proves")
            elif self._fits_reads(offset, entry):
                yield from self.logs((*log, entry), time)
        self._note(offset, self._nothing_at(offset))

    def _deadline(self, offset: int, entry: Entry, log: Log) -> float:
        deadline = self.deadlines[offset] if offset < self.end else inf
        acknowledged = isinstance(entry, Send) and entry not in log and entry.offset in {None, offset}
        return min(deadline, entry.deadline) if isinstance(entry, Send) and acknowledged else deadline

    def _note(self, offset: int, why: str) -> None:
        if why and offset > self.obstacle[0]:
            self.obstacle = offset, why

    def _nothing_at(self, offset: int) -> str:
        if any(offset == at for read in self.reads for at, _ in read.records):
            return f"no send explains the record that was read at offset {offset}"
        if any(offset in read.covered for read in self.reads):
            return f"a reply lacks the record at offset {offset}"
        return f"no record or marker may be at offset {offset}"

    def _candidates(self, log: Log) -> Iterator[Entry]:
        offset, beyond = len(log), len(log) >= self.end
        here = [send for send in self.sends if send.offset == offset]
        read = any(offset == at for read in self.reads for at, _ in read.records)
        if not (self.world.dense or beyond or here or read):
            yield GAP
        for send in here or self.sends:
            placed = send in log
            copy = placed or send.offset not in {None, offset}
            unneeded = beyond and (placed or not send.acked)
            if not unneeded and not (copy and self.world.single(send)) and len(here) < 2 and self._in_order(send, log):
                yield send
        for txn in self.markers if not here else ():
            missing = any(send.txn == txn.name and send.acked and send not in log for send in self.sends)
            if not missing and (txn not in log or (self.world.lenient and not beyond)):
                yield txn

    def _in_order(self, send: Send, log: Log) -> bool:
        """Return whether the producer may append this record now."""
        txns = self.world.transactions
        if send.txn is not None and txns[send.txn] in log:
            return False
        for entry in log:
            if isinstance(entry, Transaction) or entry is send:
                continue
            if self.world.precedes(send, entry):
                return False
            former = entry.txn is not None and send.txn not in {None, entry.txn} and txns[entry.txn] not in log
            if former and self.world.precedes(entry, send):
                return False  # the former transaction of this transactional id is not complete
        return True

    def _fits_reads(self, offset: int, entry: Entry) -> bool:
        for read in self.reads:
            if offset in read.covered:
                values = [value for at, value in read.records if at == offset]
                if self.world.visible(entry, committed=read.committed) != bool(values):
                    return False
                if isinstance(entry, Send) and any(value != entry.value for value in values):
                    return False
        return True


class _Check:
    """Checks of a complete log: transactions, times, leader epochs, and the ends that one leader returns."""

    def __init__(self, world: World, reads: list[Read], log: Log) -> None:
        self.world, self.reads, self.log = world, reads, log
        self.first: dict[Any, int] = {}
        self.marker: dict[Any, int] = {}
        for offset, entry in enumerate(log):
            if isinstance(entry, Transaction):
                self.marker.setdefault(entry.name, offset)
            elif entry.txn is not None:
                self.first.setdefault(entry.txn, offset)

    def obstacle(self) -> str:
        """Return why the log does not explain the replies; empty if it does."""
        acks = [
            Proof(entry.deadline, entry.leader_epoch, offset + 1)
            for offset, entry in enumerate(self.log)
            if isinstance(entry, Send) and entry.acked
            if entry.offset == offset or (entry.offset is None and entry not in self.log[:offset])
        ]
        proofs = list(acks)
        for read in self.reads:
            if why := self._undecided(read):
                return why
            decided = [self.marker[txn] + 1 for txn, first in self.first.items() if first < read.stable_end]
            proofs.append(Proof(read.returned, read.leader_epoch, max([read.end, *decided]), read.stable_end))
        return next(filter(None, (self._decrease(read, proofs) for read in self.reads)), "") or self._times(
            proofs, acks
        )

    def _undecided(self, read: Read) -> str:
        """Return which transaction is undecided although the last stable offset passed its first record."""
        high, stable = read.high_watermark, read.last_stable_offset
        limit = inf if high is None or self.world.lenient else high
        for txn, first in self.first.items():
            if first < read.stable_end and not (txn in self.marker and self.marker[txn] < limit):
                return f"transaction {txn} is undecided, and read_committed passes its first record"
        if high is None or stable is None or self.world.lenient or stable >= high:
            return ""
        undecided = [first for txn, first in self.first.items() if self.marker.get(txn, inf) >= high]
        return "" if stable in undecided else "no undecided transaction begins at the last stable offset"

    def _decrease(self, read: Read, proofs: list[Proof]) -> str:
        """The ends of one leader epoch do not decrease; ListOffsets knows those of former epochs (KIP-207)."""
        high, stable = read.high_watermark or 0, read.last_stable_offset or 0
        before = [proof for proof in proofs if proof.returned < read.invoked]
        own = [proof for proof in before if proof.leader_epoch == read.leader_epoch is not None]
        former = [proof.end for proof in proofs if proof.leader_epoch in range(read.leader_epoch or 0)]
        if read.high_watermark is not None:
            if read.f == "list_offsets" and high < max(former, default=0):
                return "ListOffsets returned a smaller end than a former leader"
            if high < max((proof.end for proof in own), default=0):
                return f"the high watermark of leader epoch {read.leader_epoch} decreased"
            current = (read.final or read.f == "list_offsets") and not self.world.lenient
            if current and high < max((proof.end for proof in before), default=0):
                return "an end is smaller than one that was proved, which a former leader may return"
        if read.last_stable_offset is not None and stable < max((proof.stable for proof in own), default=0):
            return f"the last stable offset of leader epoch {read.leader_epoch} decreased"
        return ""

    def _times(self, proofs: list[Proof], acks: list[Proof]) -> str:
        """An entry is appended before the replies that prove it, and before a later leader answers."""
        epochs, latest = self._epochs(proofs), 0
        for offset, entry in enumerate(self.log):
            latest = max(latest, self.world.earliest(entry))
            if any(proof.returned < latest for proof in proofs if proof.end > offset):
                return f"offset {offset} was appended later than a reply proves"
            if any(proof.returned < latest for proof in proofs if (proof.leader_epoch or 0) > epochs[offset]):
                return f"offset {offset} was appended after a later leader had answered"
        if not self.world.lenient and any(ack.leader_epoch not in {None, epochs[ack.end - 1]} for ack in acks):
            return "leader epochs decrease along the log"
        return ""

    def _epochs(self, proofs: list[Proof]) -> list[float]:
        """Return for each offset the largest epoch in which it can have been appended."""
        epochs: list[float] = [inf]
        for end in range(len(self.log), 0, -1):
            proved = [p.leader_epoch for p in proofs if p.end == end and p.leader_epoch is not None]
            epochs.append(min([epochs[-1], *proved]))
        return epochs[:0:-1]
