"""The content of one partition: what was committed at each offset, and what a reader may see of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from highwater.fuzz.simulator.invariants.violations import Violated
from highwater.reference.replication.partition import Partition
from highwater.reference.wire.records import BatchHeader, batch_headers, decode_records

READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class CommittedContents:
    """The committed records of a partition that is neither compacted nor shortened, read from its leaders.

    Replicas are compared with the committed batches by offset, epoch and CRC (LeadersAgree, ReadersAgree). So what is
    checked here for the committed batches holds for every replica that may serve them.
    """

    name: str
    violated: Violated
    values: list[bytes | None] = field(default_factory=list)  # by offset; None for a control record
    _acknowledged: dict[int, bytes] = field(default_factory=dict)  # values that are not known to be committed

    @property
    def end(self) -> int:
        """Return the offset after the last committed record."""
        return len(self.values)

    def acknowledged(self, offset: int, value: bytes) -> None:
        """AckedAreWhatWasSent: the acknowledged offset has the value that was sent, and no other one."""
        if offset < self.end:
            self._compare(offset, value)
        elif self._acknowledged.setdefault(offset, value) != value:
            self.violated(
                "AckedAreWhatWasSent",
                f"offset {offset} of {self.name} was acknowledged for {self._acknowledged[offset]!r} and for {value!r}",
            )

    def commit(self, leader: Partition) -> None:
        """Read the newly committed batches of a leader."""
        for header, batch in committed_batches(leader, self.end):
            self._append(header, batch)

    def _append(self, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            self.values += [None] * (header.next_offset - header.base_offset)
            return
        for record in decode_records(batch)[1]:
            self.values.append(record.value or b"")
            if record.offset in self._acknowledged:
                self._compare(record.offset, self._acknowledged.pop(record.offset))

    def _compare(self, offset: int, value: bytes) -> None:
        if self.values[offset] != value:
            self.violated(
                "AckedAreWhatWasSent",
                f"offset {offset} of {self.name} has {self.values[offset]!r}; {value!r} was acknowledged there",
            )


def committed_batches(replica: Partition, offset: int = 0) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the batches from `offset` to the high watermark of a replica, each as (header, bytes)."""
    offset = max(offset, replica.log.log_start_offset)
    while offset < replica.high_watermark:
        data = replica.log.read(offset, READ_BYTES, replica.high_watermark, at_least_one=True)
        for position, header in batch_headers(data):
            yield header, data[position : position + header.size]
            offset = header.next_offset
