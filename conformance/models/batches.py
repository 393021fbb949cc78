"""Batches as a producer writes them, and as a log stores them."""

from dataclasses import dataclass, field
from typing import Final

from highwater.conformance.expectations import expect, require
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.records import NewRecord, Record, TimestampType, build_batch, crc_valid, decode_records

ABORT, COMMIT = 0, 1
SEQUENCES: Final = 1 << 31
"""The sequence number after the last one is 0."""
NONE: Final = -1
MARKER_KEYS: Final = {ABORT: b"\x00\x00\x00\x00", COMMIT: b"\x00\x00\x00\x01"}
"""Version 0 and the type of a transaction marker (KIP-98)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as a producer sends it; without producer id and sequence by default."""

    records: tuple[NewRecord, ...]
    codec: Compression = Compression.NONE
    producer_id: int = NONE
    epoch: int = NONE
    sequence: int = NONE
    transactional: bool = False

    @property
    def count(self) -> int:
        return len(self.records)

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.count - 1) % SEQUENCES

    @property
    def largest_timestamp(self) -> int:
        return max(record[0] for record in self.records)

    def encoded(self) -> bytes:
        return build_batch(
            self.records, compression=self.codec, producer_id=self.producer_id, producer_epoch=self.epoch,
            base_sequence=self.sequence, transactional=self.transactional,
        )  # fmt: skip


@dataclass(slots=True)
class Stored:
    """A batch in a log; a transaction marker if `marker` is ABORT or COMMIT.

    `append_time` is the time at which the broker stored it, None while no reply has contained it. `raw` are the bytes
    of the first read, which never change.
    """

    base_offset: int
    leader_epoch: int
    batch: Batch
    codec: Compression
    by_append_time: bool = False
    append_time: int | None = None
    marker: int | None = None
    raw: bytes = field(default=b"", repr=False)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.batch.count - 1

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.batch.count

    @property
    def has_time_of_broker(self) -> bool:
        """Whether the broker chose the timestamps, which a reader learns with the batch."""
        return self.by_append_time or self.marker is not None

    @property
    def timestamps(self) -> list[int]:
        """Return the timestamp of each record; the batch must have been read if the broker chose it."""
        if self.has_time_of_broker:
            assert self.append_time is not None, f"the batch at {self.base_offset} was not read"
            return [self.append_time] * self.batch.count
        return [record[0] for record in self.batch.records]

    def compare(self, what: str, raw: bytes) -> None:
        """Compare the bytes of a read with the earlier read, or every field with the model."""
        if not self.raw:
            self._compare_fields(what, raw)
            self.raw = raw
        expect(f"{what}: bytes of the batch at {self.base_offset}", self.raw.hex(), raw.hex())

    def _compare_fields(self, what: str, raw: bytes) -> None:
        header, records = decode_records(raw)
        at = f"{what}: batch at {self.base_offset}"
        batch = self.batch
        expected = {
            "base offset": (self.base_offset, header.base_offset),
            "last offset": (self.last_offset, header.last_offset),
            "number of records": (batch.count, header.record_count),
            "leader epoch": (self.leader_epoch, header.partition_leader_epoch),
            "codec": (self.codec, header.compression),
            "type of timestamps": (TimestampType(self.by_append_time), header.timestamp_type),
            "transactional": (batch.transactional, header.is_transactional),
            "control batch": (self.marker is not None, header.is_control),
            "producer id": (batch.producer_id, header.producer_id),
            "producer epoch": (batch.epoch, header.producer_epoch),
            "base sequence": (batch.sequence, header.base_sequence),
        }
        require(f"{at}: checksum is right", True, crc_valid(raw, 0, header))
        for name, (wanted, found) in expected.items():
            expect(f"{at}: {name}", wanted, found)
        if self.append_time is None and self.has_time_of_broker:
            self.append_time = header.max_timestamp
        expect(f"{at}: largest timestamp", max(self.timestamps), header.max_timestamp)
        for wanted_record, record in zip(self._wanted_records(), records, strict=True):
            expect(f"{at}: record at {wanted_record.offset}", wanted_record, self._without_coordinator(record))

    def _wanted_records(self) -> list[Record]:
        return [
            Record(self.base_offset + delta, timestamp, key, value, tuple(headers))
            for delta, (timestamp, (_, key, value, headers)) in enumerate(
                zip(self.timestamps, self.batch.records, strict=True)
            )
        ]

    def _without_coordinator(self, record: Record) -> Record:
        """Replace the value of a marker, which contains the epoch of the coordinator, by its version."""
        if self.marker is None or record.value is None:
            return record
        return record._replace(value=record.value[:2])


def marker_batch(producer_id: int, epoch: int, kind: int) -> Batch:
    """Return the content of a transaction marker, without the coordinator's epoch in its value."""
    record = (0, MARKER_KEYS[kind], b"\x00\x00", ())
    return Batch((record,), producer_id=producer_id, epoch=epoch, transactional=True)
