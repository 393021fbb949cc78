"""The settings of a topic: type, the values that each may have (Apache Kafka's LogConfig), and what it is for."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

Allowed = Callable[[str], bool]
LONGEST: Final = (1 << 63) - 1
MAX_DIGITS: Final = 20


def _number(least: int, most: int = LONGEST) -> Allowed:
    return lambda value: (
        len(value) <= MAX_DIGITS and value.removeprefix("-").isdecimal() and least <= int(value) <= most
    )


def _one_of(*values: str) -> Allowed:
    return lambda value: value in values


def _list_of(*values: str) -> Allowed:
    return lambda value: {each.strip() for each in value.split(",")} <= set(values)


def _ratio(value: str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


class Type(IntEnum):
    """As DescribeConfigs tells it (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Setting:
    type: Type
    allowed: Allowed
    documentation: str


SETTINGS: Final[dict[str, Setting]] = {
    "cleanup.policy": Setting(
        Type.LIST, _list_of("compact", "delete"), "What becomes of old segments: they go, or each key keeps its last."
    ),
    "compression.type": Setting(
        Type.STRING,
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "The codec of stored batches.",
    ),
    "delete.retention.ms": Setting(Type.LONG, _number(0), "How long compaction keeps a tombstone."),
    "index.interval.bytes": Setting(Type.INT, _number(0), "Bytes of log for each entry of an index."),
    "max.message.bytes": Setting(Type.INT, _number(0), "The largest batch that is taken."),
    "message.timestamp.type": Setting(
        Type.STRING, _one_of("CreateTime", "LogAppendTime"), "Whose time a record has: its producer's or the broker's."
    ),
    "min.cleanable.dirty.ratio": Setting(Type.DOUBLE, _ratio, "The dirty part of a log at which compaction begins."),
    "min.compaction.lag.ms": Setting(Type.LONG, _number(0), "How long a record is safe from compaction."),
    "min.insync.replicas": Setting(Type.INT, _number(1), "In-sync replicas without which acks=all is refused."),
    "retention.bytes": Setting(Type.LONG, _number(-1), "The size from which old segments go; -1 for any."),
    "retention.ms": Setting(Type.LONG, _number(-1), "The age from which segments go; -1 for any."),
    "segment.bytes": Setting(Type.INT, _number(14), "The size at which a segment is closed."),
    "segment.index.bytes": Setting(Type.INT, _number(4), "The largest index of a segment."),
    "segment.ms": Setting(Type.LONG, _number(1), "The age at which a segment is closed."),
    "unclean.leader.election.enable": Setting(
        Type.BOOLEAN, _one_of("true", "false"), "Whether a replica outside of the ISR may lead when nobody else can."
    ),
}
"""One row for each setting of `topic_configs.py`."""
