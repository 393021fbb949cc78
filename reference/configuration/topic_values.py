"""Type, validator and documentation of each topic setting (Apache Kafka: LogConfig)."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

Validator = Callable[[str], bool]
INT64_MAX: Final = (1 << 63) - 1
MAX_DIGITS: Final = 20


def _number(minimum: int, maximum: int = INT64_MAX) -> Validator:
    return lambda value: (
        len(value) <= MAX_DIGITS and value.removeprefix("-").isdecimal() and minimum <= int(value) <= maximum
    )


def _one_of(*values: str) -> Validator:
    return lambda value: value in values


def _list_of(*values: str) -> Validator:
    return lambda value: {part.strip() for part in value.split(",")} <= set(values)


def _ratio(value: str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


class Type(IntEnum):
    """The type codes of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Setting:
    type: Type
    is_valid: Validator
    documentation: str


SETTINGS: Final[dict[str, Setting]] = {
    "cleanup.policy": Setting(
        Type.LIST,
        _list_of("compact", "delete"),
        "Whether old segments are deleted, or compacted to the last record of each key.",
    ),
    "compression.type": Setting(
        Type.STRING,
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "The compression codec of stored batches.",
    ),
    "delete.retention.ms": Setting(Type.LONG, _number(0), "How long compaction keeps a tombstone."),
    "index.interval.bytes": Setting(Type.INT, _number(0), "Log bytes between two index entries."),
    "max.message.bytes": Setting(Type.INT, _number(0), "The largest batch that a producer may send, in bytes."),
    "message.timestamp.after.max.ms": Setting(
        Type.LONG, _number(0), "How far a producer's timestamp may be ahead of the broker's clock."
    ),
    "message.timestamp.before.max.ms": Setting(
        Type.LONG, _number(0), "How far a producer's timestamp may be behind the broker's clock."
    ),
    "message.timestamp.type": Setting(
        Type.STRING,
        _one_of("CreateTime", "LogAppendTime"),
        "Whether a record's timestamp is set by its producer or by the broker.",
    ),
    "min.cleanable.dirty.ratio": Setting(Type.DOUBLE, _ratio, "The dirty share of a log from which it is compacted."),
    "min.compaction.lag.ms": Setting(Type.LONG, _number(0), "The minimum age of a record before it is compacted."),
    "min.insync.replicas": Setting(
        Type.INT, _number(1), "The minimum number of in-sync replicas for a produce request with acks=all."
    ),
    "retention.bytes": Setting(
        Type.LONG, _number(-1), "The log size above which old segments are deleted; -1 for no limit."
    ),
    "retention.ms": Setting(Type.LONG, _number(-1), "The age above which segments are deleted; -1 for no limit."),
    "segment.bytes": Setting(Type.INT, _number(14), "The size at which a new segment is started."),
    "segment.index.bytes": Setting(Type.INT, _number(4), "The maximum size of a segment's index."),
    "segment.ms": Setting(Type.LONG, _number(1), "The age at which a new segment is started."),
    "unclean.leader.election.enable": Setting(
        Type.BOOLEAN,
        _one_of("true", "false"),
        "Whether a replica outside the ISR may become leader when no ISR member is alive.",
    ),
}
"""One entry for each setting of `TopicConfigs.defaults`."""
