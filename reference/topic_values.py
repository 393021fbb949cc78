"""Which values a topic setting may have (Apache Kafka's LogConfig)."""

from collections.abc import Callable
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


ALLOWED: Final[dict[str, Allowed]] = {
    "cleanup.policy": _list_of("compact", "delete"),
    "compression.type": _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "delete.retention.ms": _number(0),
    "index.interval.bytes": _number(0),
    "max.message.bytes": _number(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _number(0),
    "min.insync.replicas": _number(1),
    "retention.bytes": _number(-1),
    "retention.ms": _number(-1),
    "segment.bytes": _number(14),
    "segment.index.bytes": _number(4),
    "segment.ms": _number(1),
    "unclean.leader.election.enable": _one_of("true", "false"),
}
"""One row for each setting of `topic_configs.py`."""
