"""Records as values of a history: a record is told by the same value when it is written and when it is read.

- A record of an idempotent producer is known by its producer id, epoch and sequence; its text, or a digest of key and
  value, goes with it.  So a batch that the log holds twice is found, and equal records are not taken for one.
- A record without producer id is known by key and value alone.  Where these repeat, nobody can tell a duplicate from
  a second record; the header then says `idempotence` false, and duplicates are expected.
- A null value is a tombstone.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.records import MAGIC, BatchHeader, Record, batch_headers, decode_records

SHOWN: Final = 40  # characters of a value that stand for themselves
SEQUENCES: Final = 1 << 31  # they begin again at 0
UNPACKED_LIMIT: Final = 256 << 20  # bytes of one batch


class Undecoded(Exception):
    """Records that are older than the format of batches, compressed in an unknown way, or broken."""


def batches(data: bytes | None) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Whole batches, control batches without their records. Raises Undecoded."""
    try:
        for position, header in batch_headers(data or b""):
            if header.magic != MAGIC:
                raise Undecoded(f"records of format {header.magic}")
            yield header, [] if header.is_control else decode_records(data or b"", position, UNPACKED_LIMIT)[1]
    except DecodeError as error:
        raise Undecoded(str(error)) from error


def value_of(header: BatchHeader, record: Record) -> str | None:
    """The value by which this record is known."""
    if record.value is None:
        return None
    text = _text(record.key, record.value)
    if header.producer_id < 0:
        return text
    return f"{text} [{header.producer_id}/{header.producer_epoch}/{sequence_of(header, record)}]"


def sequence_of(header: BatchHeader, record: Record) -> int:
    """Counted by offsets within the batch: compaction takes records out of it."""
    return (header.base_sequence + record.offset - header.base_offset) % SEQUENCES


def _text(key: bytes | None, value: bytes) -> str:
    if len(value) <= SHOWN and value.isascii():
        text = value.decode()
        if text.isprintable():
            return text if key is None else f"{key_text(key)}={text}"
    digest = blake2b(digest_size=8)
    for part in (key, value):
        digest.update(b"-" if part is None else len(part).to_bytes(4, "big") + part)
    return f"#{digest.hexdigest()}"


def key_text(key: bytes | None) -> str | None:
    if key is None:
        return None
    text = key.decode(errors="replace")
    return (
        text
        if len(key) <= SHOWN and text.isprintable() and "�" not in text
        else blake2b(key, digest_size=8).hexdigest()
    )
