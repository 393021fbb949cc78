"""What a walk chooses at random: records, valid and invalid batches, times, and values around a limit."""

from collections.abc import Sequence
from random import Random
from typing import Final

from highwater.conformance.cases.support.log_walks.walk import Key, Walk
from highwater.conformance.cases.support.log_walks.writes import Write
from highwater.conformance.models.batches import NONE, Batch
from highwater.conformance.models.log import ModelLog
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.invalid_batches import InvalidBatch, invalid_batches
from highwater.reference.wire.records import NewRecord, build_batch

BACK_MS: Final = 30_000
"""Timestamps of records are at most so long before the begin of the walk, in no order."""
KEYS: Final = (None, b"", b"k", b"key" * 20)
VALUES: Final = (None, b"", b"v", b"value" * 40)
HEADERS: Final = ((), (("h", b"1"),), (("h", None), ("", b""), ("h", b"2")))


def records(walk: Walk, count: int) -> tuple[NewRecord, ...]:
    """Return records whose times go back, with null and empty keys, values and headers among them."""
    choose = walk.random.choice
    return tuple((any_time(walk), choose(KEYS), choose(VALUES), choose(HEADERS)) for _ in range(count))


def any_time(walk: Walk) -> int:
    """Return one of a few times, so that several records have the same."""
    return walk.began_ms - 1000 * walk.random.randrange(BACK_MS // 1000)


def plain_batch(walk: Walk, codecs: Sequence[Compression] = tuple(Compression)) -> Batch:
    """Return a batch without a producer id."""
    return Batch(records(walk, walk.random.choice((1, 1, 2, 3, 5))), codec=walk.random.choice(list(codecs)))


def batch_of_size(walk: Walk, size: int) -> Batch:
    """Return a batch of one record that has exactly this size in bytes."""
    empty = Batch(((walk.began_ms, None, b"x" * (size // 2), ()),))
    value = b"x" * (size - len(empty.encoded()) + size // 2)
    while True:
        found = Batch(((walk.began_ms, None, value, ()),))
        if len(found.encoded()) <= size:
            return found
        value = value[1:]


def invalid_writes(walk: Walk, key: Key) -> list[Write]:
    """Return one write of each kind that a broker refuses, with the errors that it may return."""
    good = Batch(records(walk, 2)).encoded()
    invalid = frozenset({ErrorCode.INVALID_RECORD})
    raw = [
        (good[:-1] + bytes([good[-1] ^ 1]), frozenset({ErrorCode.CORRUPT_MESSAGE})),
        (good + good, invalid),
        (b"", invalid),
        (build_batch([(walk.began_ms, b"k", b"v", ())], base_offset=1), invalid),
        (build_batch([(walk.began_ms, b"\x00\x00\x00\x01", b"\x00" * 6, ())], control=True), invalid),
        *((each.batch, frozenset({*each.errors, *_too_old(each.name)})) for each in _invalid(walk)),
    ]
    return [Write(key, data=data, errors=errors) for data, errors in raw]


def _invalid(walk: Walk) -> list[InvalidBatch]:
    """Return the batches that no reader could decode, without the one with an unknown codec.

    Below Produce 7, Apache Kafka refuses the whole request because of it (IllegalArgumentException in validateRecords).
    """
    return [each for each in invalid_batches(walk.began_ms) if each.name != "an unknown codec"]


def _too_old(name: str) -> set[ErrorCode]:
    """Return the error below Produce 7 for a batch with zstd, whatever is in it."""
    return {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE} if name.startswith("zstd") else set()


def around(random: Random, values: Sequence[int]) -> int:
    """Return one of the values, or one less or more."""
    return max(random.choice(list(values)) + random.choice((-1, 0, 1)), 0)


def current_epochs(log: ModelLog) -> list[int]:
    """Return leader epochs that a reader may state: mostly none, that of the leader, the next and the one before it."""
    older = [log.leader_epoch - 1] * 2 if log.leader_epoch else []
    return [NONE, NONE, NONE, NONE, log.leader_epoch, log.leader_epoch + 1, *older]
