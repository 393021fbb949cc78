"""Invariants of idempotent producers (KIP-98), derived from the batches of a log."""

from collections.abc import Iterator

from highwater.reference.storage.producer_state import NO_SEQUENCE, SEQUENCE_MODULUS, last_sequence
from highwater.reference.wire.records import BatchHeader


def out_of_order(batches: Iterator[tuple[BatchHeader, bytes]]) -> Iterator[tuple[int, str]]:
    """Yield offset and message for each batch whose sequence number does not follow that of the batch before.

    The first batch of a producer without transactions may have any (KIP-360), that of a transactional one has 0.
    """
    last: dict[tuple[int, int], int] = {}
    for header, _ in batches:
        producer = header.producer_id, header.producer_epoch
        if header.producer_id < 0 or header.is_control or header.base_sequence == NO_SEQUENCE:
            continue
        first = 0 if header.is_transactional else header.base_sequence
        expected = (last[producer] + 1) % SEQUENCE_MODULUS if producer in last else first
        if header.base_sequence != expected:
            yield (
                header.base_offset,
                (
                    f"the batch at {header.base_offset} of producer {producer[0]} epoch {producer[1]} has sequence "
                    f"{header.base_sequence} instead of {expected}"
                ),
            )
        last[producer] = last_sequence(header)
