"""The content of one partition: what was committed at each offset, and what a reader may see of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from highwater.fuzz.simulator.invariants.violations import About, Violated
from highwater.reference.replication.partition import Partition
from highwater.reference.storage.producer_state import read_marker
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.records import BatchHeader, batch_headers, decode_records

READ_BYTES: Final = 1 << 20


class CommittedLog(Protocol):
    """What reads the committed batches of a partition."""

    def commit(self, leader: Partition) -> None:
        """Read the newly committed batches of a leader."""


@dataclass(slots=True)
class CommittedContents:
    """The committed records of a partition that is neither compacted nor shortened, read from its leaders.

    Replicas are compared with the committed batches by offset, epoch and CRC (LeadersAgree, ReadersAgree). So what is
    checked here for the committed batches holds for every replica that may serve them. `on_visible(offset)` is called
    for each record when a read_committed consumer may first see it, in the order of the markers.
    """

    name: str
    violated: Violated
    on_visible: Callable[[int], None] = lambda offset: None
    values: list[bytes | None] = field(default_factory=list)  # by offset; None for a control record
    visible: list[bool | None] = field(default_factory=list)  # by offset: not aborted; None while undecided
    _acknowledged: dict[int, bytes] = field(default_factory=dict)  # values that are not known to be committed
    _open: dict[int, list[int]] = field(default_factory=dict)  # producer id -> offsets of its open transaction

    @property
    def end(self) -> int:
        """Return the offset after the last committed record."""
        return len(self.values)

    @property
    def stable_end(self) -> int:
        """Return the first offset of an open transaction, or `end`."""
        return min((offsets[0] for offsets in self._open.values()), default=self.end)

    def between(self, start: int, end: int, *, read_committed: bool) -> Iterator[tuple[int, bytes]]:
        """Yield offset and value of the records that a consumer delivers of these offsets."""
        for offset in range(start, end):
            value = self.values[offset]
            if value is not None and (self.visible[offset] or not read_committed):
                yield offset, value

    def acknowledged(self, offset: int, value: bytes) -> None:
        """AckedAreWhatWasSent: the acknowledged offset has the value that was sent, and no other one."""
        if offset < 0:
            what = f"{value!r} was acknowledged in {self.name} at the offset {offset}"
            self.violated("AckedAreWhatWasSent", what, About(self.name))
        elif offset < self.end:
            self._compare(offset, value)
        elif self._acknowledged.setdefault(offset, value) != value:
            self.violated(
                "AckedAreWhatWasSent",
                f"offset {offset} of {self.name} was acknowledged for {self._acknowledged[offset]!r} and for {value!r}",
                About(self.name, offset),
            )

    def commit(self, leader: Partition) -> None:
        """Read the newly committed batches of a leader."""
        for header, batch in committed_batches(leader, self.end):
            if header.is_control:
                self._append_marker(header, batch)
            else:
                self._append_records(header, batch)

    def _append_marker(self, header: BatchHeader, batch: bytes) -> None:
        self.values += [None] * (header.next_offset - header.base_offset)
        self.visible += [False] * (header.next_offset - header.base_offset)
        marker = read_marker(batch)
        for offset in self._open.pop(header.producer_id, []):
            self.visible[offset] = marker is not None and marker.committed
            if self.visible[offset]:
                self.on_visible(offset)

    def _append_records(self, header: BatchHeader, batch: bytes) -> None:
        try:
            records = decode_records(batch)[1]
        except DecodeError as error:
            offset = header.base_offset
            self.violated(
                "NothingInvalidStored",
                f"offset {offset} of {self.name} has no records: {error}",
                About(self.name, offset),
            )
            return
        for record in records:
            self.values.append(record.value or b"")
            self.visible.append(None if header.is_transactional else True)
            if header.is_transactional:
                self._open.setdefault(header.producer_id, []).append(record.offset)
            else:
                self.on_visible(record.offset)
            if record.offset in self._acknowledged:
                self._compare(record.offset, self._acknowledged.pop(record.offset))

    def _compare(self, offset: int, value: bytes) -> None:
        if self.values[offset] != value:
            self.violated(
                "AckedAreWhatWasSent",
                f"offset {offset} of {self.name} has {self.values[offset]!r}; {value!r} was acknowledged there",
                About(self.name, offset),
            )


def committed_batches(replica: Partition, offset: int = 0) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the batches from `offset` to the high watermark of a replica, each as (header, bytes)."""
    offset = max(offset, replica.log.log_start_offset)
    while offset < replica.high_watermark:
        data = replica.log.read(offset, READ_BYTES, replica.high_watermark, at_least_one=True)
        for position, header in batch_headers(data):
            yield header, data[position : position + header.size]
            offset = header.next_offset
