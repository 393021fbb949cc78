"""Identify records by a value that is the same when written and when read.

- A record of an idempotent producer is identified by producer id, epoch and sequence, with its text or a digest of key
  and value.  A batch stored twice is detected, and equal records stay distinct.
- A record without producer id is identified by key and value only.  If these repeat, a duplicate looks like a second
  record; the header then says `idempotence` false, and duplicates are expected.
- A null value is a tombstone.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.records import MAGIC, BatchHeader, Record, batch_headers, decode_records

SHOWN: Final = 40  # longest value in bytes that is shown as text instead of a digest
SEQUENCES: Final = 1 << 31  # sequence numbers wrap to 0 here
UNPACKED_LIMIT: Final = 256 << 20  # bytes of one batch


class Undecoded(Exception):
    """Records in a format before v2, with unknown compression, or corrupt."""


def batches(data: bytes | None) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield complete batches; control batches without their records. Raises Undecoded."""
    try:
        for position, header in batch_headers(data or b""):
            if header.magic != MAGIC:
                raise Undecoded(f"records of format {header.magic}")
            yield header, [] if header.is_control else decode_records(data or b"", position, UNPACKED_LIMIT)[1]
    except DecodeError as error:
        raise Undecoded(str(error)) from error


def value_of(header: BatchHeader, record: Record) -> str | None:
    """Return the value that identifies this record; None for a tombstone."""
    if record.value is None:
        return None
    text = _text(record.key, record.value)
    if header.producer_id < 0:
        return text
    return f"{text} [{header.producer_id}/{header.producer_epoch}/{sequence_of(header, record)}]"


def sequence_of(header: BatchHeader, record: Record) -> int:
    """Return the sequence of a record, from its offset delta: compaction may remove records of a batch."""
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
