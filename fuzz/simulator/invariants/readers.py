"""Invariants of consumers: what they read is what was sent and committed, and it stays readable."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from highwater.fuzz.simulator.clients.readers import LATEST, ConsumedBatch, ListedOffsets
from highwater.fuzz.simulator.cluster import TOPIC
from highwater.fuzz.simulator.invariants.committed_offsets import CommittedOffsets, Snapshot
from highwater.fuzz.simulator.invariants.contents import CommittedContents
from highwater.fuzz.simulator.invariants.violations import About, SituationCounts, Violated

NOTHING: Final = (-1, b"")
READ: Final = "ReadIsWhatWasSent"


def _about(reader: str, partition: int, offset: int) -> About:
    return About(f"{TOPIC}-{partition}", offset, node=reader)


def _stable_end(contents: CommittedContents) -> str:
    """Return the last stable offset with the first record of the transaction that is open there, if one is."""
    offset = contents.stable_end
    return f"{offset}, where {contents.values[offset]!r} is undecided" if offset < contents.end else str(offset)


class ObservedReaders:
    """Compares what readers receive with the committed records; a leader's commit is always known before.

    The log of a broker with flipped bits is not read, so what it commits as a leader is not known. In responses of a
    broker that ever had some (`rotten`) only values that another leader has committed are checked.
    """

    def __init__(
        self, contents: Mapping[int, CommittedContents], offsets: CommittedOffsets, rotten: set[int],
        situations: SituationCounts, violated: Violated,
    ) -> None:  # fmt: skip
        self._contents, self._offsets, self._rotten = contents, offsets, rotten
        self._situations, self._violated = situations, violated

    def read(self, read: ConsumedBatch) -> None:
        """Check the records of one partition in a response."""
        contents, position, end = self._contents[read.partition], read.position, read.fetched.position
        where = f"{read.reader} reads {TOPIC}-{read.partition} from broker {read.broker_id}"
        about = _about(read.reader, read.partition, contents.end)
        if read.broker_id in self._rotten:
            self._compare_values(read, contents, where)
            return
        # If not, the position may be from a leader with flipped bits, whose commits are unknown.
        returned = end > position
        if returned and end > contents.end:
            self._violated("ReadIsCommitted", f"{where} up to {end}; {contents.end} records are committed", about)
        if read.data.last_stable_offset > contents.stable_end:
            self._violated(
                "LastStableOffset",
                f"{where}: it returns {read.data.last_stable_offset} instead of at most {_stable_end(contents)}",
            )
        if returned and read.read_committed and end > contents.stable_end:
            self._violated("LastStableOffset", f"{where} up to {end}, beyond {_stable_end(contents)}")
        self._compare(read, contents, where)
        self._count(read, contents, position, end)

    def _compare(self, read: ConsumedBatch, contents: CommittedContents, where: str) -> None:
        expected = contents.between(read.position, read.fetched.position, read_committed=read.read_committed)
        for found, wanted in zip_longest(read.fetched.records, expected, fillvalue=NOTHING):
            if found == wanted:
                continue
            if read.read_committed and found[0] >= 0 and contents.visible[found[0]] is False:
                self._violated("AbortedStaysHidden", f"{where} and sees {found[1]!r} at {found[0]}, which is aborted")
            about = _about(read.reader, read.partition, max(found[0], wanted[0]))
            self._violated(READ, f"{where} and sees {found}, where {wanted} is committed", about)

    def _compare_values(self, read: ConsumedBatch, contents: CommittedContents, where: str) -> None:
        """Compare the records whose values are known: a broker may lose what its disk damaged, and not return it."""
        for offset, value in read.fetched.records:
            if offset < contents.end and contents.values[offset] != value:
                wanted = contents.values[offset]
                about = _about(read.reader, read.partition, offset)
                self._violated(READ, f"{where} and sees {value!r} at {offset}, where {wanted!r} is committed", about)

    def _count(self, read: ConsumedBatch, contents: CommittedContents, position: int, end: int) -> None:
        if end > position:
            self._situations.add("read_committed read" if read.read_committed else "read_uncommitted read")
        if read.read_committed and False in contents.visible[position:end]:
            self._situations.add("read over an abort")
        if not read.read_committed and None in contents.visible[position:end]:
            self._situations.add("read of an open transaction")

    def unreadable(self, reader: str, broker_id: int, message: str) -> None:
        """Check that no broker returns a batch that cannot be decoded: each batch has a checksum."""
        self._violated(READ, f"{reader} cannot decode what broker {broker_id} returns: {message}", About(node=reader))

    def out_of_range(self, reader: str, broker_id: int, partition: int, position: int) -> None:
        """ReadableStays: a later leader has all that a reader has seen."""
        if broker_id not in self._rotten and position <= self._contents[partition].end:
            self._violated(
                "ReadableStays",
                f"{reader} has read {TOPIC}-{partition} up to {position}, which broker {broker_id} lacks",
                _about(reader, partition, position - 1),
            )

    def listed(self, listed: ListedOffsets) -> None:
        """Check an offset of ListOffsets: the log start stays, and the end is neither dirty nor lower than before."""
        if listed.broker_id in self._rotten:
            return
        contents = self._contents[listed.partition]
        where = f"{listed.reader} lists {TOPIC}-{listed.partition} at broker {listed.broker_id}"
        end = contents.stable_end if listed.read_committed else contents.end
        about = _about(listed.reader, listed.partition, listed.offset)
        if listed.offset > end:
            self._violated("ReadIsCommitted", f"{where}: the end is {listed.offset}, beyond {end}", about)
        if listed.timestamp == LATEST:
            self._situations.add("log end listed")
            if listed.offset < listed.seen_end:
                self._violated("EndNeverFalls", f"{where}: the end is {listed.offset}, after {listed.seen_end}", about)
        elif listed.offset != 0:
            self._violated("ReadableStays", f"{where}: the start is {listed.offset}, and nothing was deleted", about)

    # -- committed offsets -------------------------------------------------------------------------

    def offsets_committed(self, group: str, offsets: dict[int, int]) -> None:
        """Check that acknowledged commits are in the log."""
        self._situations.add("positions committed")
        self._offsets.acknowledged(group, offsets)

    def offsets_requested(self, broker_id: int, group: str) -> Snapshot:
        """Return what is committed when OffsetFetch is sent."""
        return self._offsets.snapshot(broker_id, group)

    def offsets_fetched(self, reader: str, token: object, offsets: dict[int, int]) -> None:
        """Check the committed offsets in a response."""
        assert isinstance(token, Snapshot)
        if any(offset > 0 for offset in offsets.values()):
            self._situations.add("positions fetched")
        self._offsets.fetched(token, offsets)
