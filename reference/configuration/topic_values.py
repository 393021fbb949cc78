"""Every topic setting of Apache Kafka 3.9: type, allowed values, default and documentation (LogConfig, TopicConfig)."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from math import isnan
from typing import Final

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
MAX_DIGITS: Final = 20
UNLIMITED: Final = str(INT64_MAX)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The values that a setting may have; `text` completes the sentence "The value must be"."""

    text: str
    contains: Callable[[str], bool]


def number(minimum: int, maximum: int = INT64_MAX) -> Allowed:
    """Allow integers from `minimum` to `maximum`."""

    def contains(value: str) -> bool:
        # Python refuses to convert thousands of digits, with an exception that is not for clients.
        return len(value) <= MAX_DIGITS and is_integer(value) and minimum <= int(value) <= maximum

    return Allowed(f"a number from {minimum} to {maximum}", contains)


def is_integer(value: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+", value) is not None


def one_of(*values: str) -> Allowed:
    """Allow exactly these values."""
    return Allowed(" or ".join(values), lambda value: value in values)


def list_of(*values: str) -> Allowed:
    """Allow lists of these values, separated by commas, and the empty list (ConfigDef.ValidList)."""
    return Allowed(
        f"a list of {' and '.join(values)}",
        lambda value: not value or {part.strip() for part in value.split(",")} <= set(values),
    )


def _is_ratio(value: str) -> bool:
    try:
        return not isnan(float(value)) and 0 <= float(value) <= 1
    except ValueError:
        return False


def _gzip_level(value: str) -> bool:
    return value == "-1" or number(1, 9).contains(value)


BOOLEAN: Final = one_of("true", "false")
RATIO: Final = Allowed("a number from 0 to 1", _is_ratio)
# ThrottledReplicaListValidator in Apache Kafka; the empty list is the default.
THROTTLED_REPLICAS: Final = Allowed(
    "* or a list of partition:broker, separated by commas",
    lambda value: re.fullmatch(r"\*|(?:\d+:\d+(?:, *\d+:\d+)*)?", value) is not None,
)
VERSION: Final = Allowed(
    "a version of Apache Kafka, such as 3.0-IV1",
    lambda value: re.fullmatch(r"\d\.\d{1,2}(?:\.\d{1,2}){0,2}(?:-IV\d+)?", value) is not None,
)


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
    """One setting.

    `broker` is the setting of the broker that a topic falls back to, empty if there is none (ServerTopicConfigSynonyms
    in Apache Kafka). `default` applies if the broker has no such setting either. `unused` is empty, or says why the
    setting has no effect on this broker: it is accepted because tools and frameworks set it.
    """

    type: Type
    allowed: Allowed
    documentation: str
    broker: str = ""
    default: str = ""
    unused: str = ""

    def parse(self, value: str) -> str:
        """Return the value as ConfigDef.parseType of Apache Kafka reads it: trimmed, booleans in lower case."""
        return value.strip().lower() if self.type is Type.BOOLEAN else value.strip()

    def is_valid(self, value: str) -> bool:
        return self.allowed.contains(self.parse(value))

    @property
    def description(self) -> str:
        """The documentation that DescribeConfigs returns (KIP-569)."""
        return f"{self.documentation} Without effect here: {self.unused}." if self.unused else self.documentation


NO_THROTTLE: Final = "this broker does not limit the rate of replication"
NO_REMOTE_STORAGE: Final = "this broker has no remote storage"
NO_LEVEL: Final = "the codec's default level is used"

SETTINGS: Final[dict[str, Setting]] = {
    "cleanup.policy": Setting(
        Type.LIST,
        list_of("compact", "delete"),
        "Whether old segments are deleted, or compacted to the last record of each key.",
        "log.cleanup.policy",
        "delete",
    ),
    "compression.gzip.level": Setting(
        Type.INT,
        Allowed("-1, or a number from 1 to 9", _gzip_level),
        "The level of gzip.",
        "compression.gzip.level",
        "-1",
        NO_LEVEL,
    ),
    "compression.lz4.level": Setting(
        Type.INT, number(1, 17), "The level of lz4.", "compression.lz4.level", "9", NO_LEVEL
    ),
    "compression.type": Setting(
        Type.STRING,
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "The compression codec of stored batches.",
        "compression.type",
        "producer",
    ),
    "compression.zstd.level": Setting(
        Type.INT, number(-131_072, 22), "The level of zstd.", "compression.zstd.level", "3", NO_LEVEL
    ),
    "delete.retention.ms": Setting(
        Type.LONG, number(0), "How long compaction keeps a tombstone.", "log.cleaner.delete.retention.ms"
    ),
    "file.delete.delay.ms": Setting(
        Type.LONG,
        number(0),
        "How long the files of a deleted segment remain.",
        "log.segment.delete.delay.ms",
        "60000",
        "the files are deleted at once",
    ),
    "flush.messages": Setting(
        Type.LONG, number(1), "The number of unflushed records that starts a flush.", "log.flush.interval.messages"
    ),
    "flush.ms": Setting(
        Type.LONG,
        number(0),
        "The age of unflushed records that starts a flush.",
        "log.flush.interval.ms",
        unused="the broker flushes all logs together, at the interval log.flush.interval.ms",
    ),
    "follower.replication.throttled.replicas": Setting(
        Type.LIST, THROTTLED_REPLICAS, "The throttled replicas of followers.", unused=NO_THROTTLE
    ),
    "index.interval.bytes": Setting(
        Type.INT, number(0, INT32_MAX), "Log bytes between two index entries.", "log.index.interval.bytes"
    ),
    "leader.replication.throttled.replicas": Setting(
        Type.LIST, THROTTLED_REPLICAS, "The replicas that a leader throttles.", unused=NO_THROTTLE
    ),
    "local.retention.bytes": Setting(
        Type.LONG,
        number(-2),
        "The size of the local log beside remote storage.",
        "log.local.retention.bytes",
        "-2",
        NO_REMOTE_STORAGE,
    ),
    "local.retention.ms": Setting(
        Type.LONG,
        number(-2),
        "The age of local segments beside remote storage.",
        "log.local.retention.ms",
        "-2",
        NO_REMOTE_STORAGE,
    ),
    "max.compaction.lag.ms": Setting(
        Type.LONG,
        number(1),
        "The age from which a record is compacted, whatever the dirty ratio is (KIP-354).",
        "log.cleaner.max.compaction.lag.ms",
        UNLIMITED,
    ),
    "max.message.bytes": Setting(
        Type.INT,
        number(0, INT32_MAX),
        "The largest batch that a producer may send, in bytes.",
        "message.max.bytes",
    ),
    "message.downconversion.enable": Setting(
        Type.BOOLEAN,
        BOOLEAN,
        "Whether Fetch before version 4 is answered with message sets (KIP-283).",
        "log.message.downconversion.enable",
        "true",
    ),
    "message.format.version": Setting(
        Type.STRING,
        VERSION,
        "The format of stored records until Apache Kafka 3.",
        "log.message.format.version",
        "3.0-IV1",
        "records are stored in format v2, as in Apache Kafka since 3.0 (KIP-724)",
    ),
    "message.timestamp.after.max.ms": Setting(
        Type.LONG,
        number(0),
        "How far a producer's timestamp may be ahead of the broker's clock (KIP-937).",
        "log.message.timestamp.after.max.ms",
        "3600000",
    ),
    "message.timestamp.before.max.ms": Setting(
        Type.LONG,
        number(0),
        "How far a producer's timestamp may be behind the broker's clock (KIP-937).",
        "log.message.timestamp.before.max.ms",
        UNLIMITED,
    ),
    "message.timestamp.difference.max.ms": Setting(
        Type.LONG,
        number(0),
        "How far a timestamp may differ from the broker's clock, unless KIP-937's two settings say otherwise.",
        "log.message.timestamp.difference.max.ms",
        UNLIMITED,
    ),
    "message.timestamp.type": Setting(
        Type.STRING,
        one_of("CreateTime", "LogAppendTime"),
        "Whether a record's timestamp is set by its producer or by the broker.",
        "log.message.timestamp.type",
    ),
    "min.cleanable.dirty.ratio": Setting(
        Type.DOUBLE,
        RATIO,
        "The dirty share of a log from which it is compacted.",
        "log.cleaner.min.cleanable.ratio",
    ),
    "min.compaction.lag.ms": Setting(
        Type.LONG,
        number(0),
        "The minimum age of a record before it is compacted.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    "min.insync.replicas": Setting(
        Type.INT,
        number(1, INT32_MAX),
        "The minimum number of in-sync replicas for a produce request with acks=all.",
        "min.insync.replicas",
    ),
    "preallocate": Setting(
        Type.BOOLEAN,
        BOOLEAN,
        "Whether the file of a new segment gets its full size at once.",
        "log.preallocate",
        "false",
        "files grow with each append",
    ),
    "remote.log.copy.disable": Setting(
        Type.BOOLEAN, BOOLEAN, "Whether copies to remote storage stop.", default="false", unused=NO_REMOTE_STORAGE
    ),
    "remote.log.delete.on.disable": Setting(
        Type.BOOLEAN,
        BOOLEAN,
        "Whether remote data is deleted when remote storage is disabled.",
        default="false",
        unused=NO_REMOTE_STORAGE,
    ),
    "remote.storage.enable": Setting(
        Type.BOOLEAN,
        Allowed("false: this broker has no remote storage", lambda value: value == "false"),
        "Whether segments are copied to remote storage (KIP-405).",
        default="false",
        unused=NO_REMOTE_STORAGE,
    ),
    "retention.bytes": Setting(
        Type.LONG,
        number(-1),
        "The log size above which old segments are deleted; -1 for no limit.",
        "log.retention.bytes",
    ),
    "retention.ms": Setting(
        Type.LONG, number(-1), "The age above which segments are deleted; -1 for no limit.", "log.retention.ms"
    ),
    "segment.bytes": Setting(
        Type.INT, number(14, INT32_MAX), "The size at which a new segment is started.", "log.segment.bytes"
    ),
    "segment.index.bytes": Setting(
        Type.INT, number(4, INT32_MAX), "The maximum size of a segment's index.", "log.index.size.max.bytes"
    ),
    "segment.jitter.ms": Setting(
        Type.LONG,
        number(0),
        "The maximum by which a segment may close earlier than segment.ms, different for each segment.",
        "log.roll.jitter.ms",
        "0",
    ),
    "segment.ms": Setting(Type.LONG, number(1), "The age at which a new segment is started.", "log.roll.ms"),
    "unclean.leader.election.enable": Setting(
        Type.BOOLEAN,
        BOOLEAN,
        "Whether a replica outside the ISR may become leader when no ISR member is alive.",
        "unclean.leader.election.enable",
    ),
}
"""One entry for each topic setting, sorted by name."""
