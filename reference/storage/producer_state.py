"""What a partition remembers of idempotent producers: the last five batches of each (KIP-98, KIP-360)."""

from dataclasses import dataclass, field

from reference.wire.errors import ErrorCode
from reference.wire.records import BatchHeader

BATCHES_KEPT = 5
SEQUENCE_MODULUS = 1 << 31


@dataclass(frozen=True, slots=True)
class RememberedBatch:
    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    epoch: int
    batches: list[RememberedBatch] = field(default_factory=list)


def last_sequence(header: BatchHeader) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS


class ProducerStates:
    """Keyed by producer id."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}

    def duplicate(self, header: BatchHeader) -> RememberedBatch | None:
        """The remembered batch that this one repeats, if it is among the last five."""
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        span = (header.base_sequence, last_sequence(header))
        return next((b for b in entry.batches if (b.base_sequence, b.last_sequence) == span), None)

    def check(self, header: BatchHeader) -> ErrorCode:
        """May this batch be appended next? An unknown producer id may begin anywhere (KIP-360)."""
        if header.base_sequence < 0:
            return ErrorCode.INVALID_RECORD
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return ErrorCode.NONE
        if header.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > entry.epoch:
            return ErrorCode.NONE if header.base_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected = (entry.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS if entry.batches else 0
        return ErrorCode.NONE if header.base_sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def note(self, header: BatchHeader) -> None:
        """Remember an appended batch."""
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        entry.batches.append(
            RememberedBatch(header.base_sequence, last_sequence(header), header.base_offset, header.max_timestamp)
        )
        del entry.batches[:-BATCHES_KEPT]

    def clear(self) -> None:
        self.entries.clear()
