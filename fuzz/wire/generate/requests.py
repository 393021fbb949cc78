"""Generate valid requests for every API and version from the message classes, with topic and group names that exist."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from highwater.fuzz.wire.generate.response_values import THING_OF, ResponseValues
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.records import build_batch
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, Field, FieldType, Fixed, Layout, StructOf, message_layout

TOPICS = ("fuzz-a", "fuzz-b")
EMPTY_TOPIC = "fuzz-empty"
"""Only read, so that its log stays empty."""
FETCH, LIST_OFFSETS, EPOCH_ENDS = 1, 2, 23
GROUPS = ("fuzz-group", "fuzz-group-2")
MEMBERS = ("", "fuzz-member-1", "fuzz-member-2")  # since KIP-848 a member names itself
CLIENT_ID = "highwater-fuzz"

# Requests that a broker obeys and that would stop it, or delete data.
HARMFUL = {4, 5, 6, 7, 56}
# Timeouts of requests: kept short, so that a missing response is a failure.
WAITS = {"max_wait_ms": 50, "timeout_ms": 500, "rebalance_timeout_ms": 1_000, "session_timeout_ms": 6_000}
NAMES = {
    **dict.fromkeys(("topic", "name", "topic_name", "subscribed_topic_names"), TOPICS),
    **dict.fromkeys(("group_id", "group_ids", "key", "groups", "groups_names", "coordinator_keys"), GROUPS),
    "member_id": MEMBERS,
    "resource_name": (*TOPICS, "0", "1", ""),
    "server_assignor": ("uniform", "range"),
}
SMALL = {
    "partition",
    "partition_index",
    "partition_id",
    "index",
    "acks",
    "replica_id",
    "generation_id",
    "isolation_level",
}
EDGES = {
    "int8": (-1, 0, 1, 127, -128),
    "int16": (-1, 0, 1, 32767, -32768),
    "int32": (-1, 0, 1, 2**31 - 1, -(2**31)),
    "int64": (-1, 0, 1, 2**63 - 1, -(2**63)),
    "uint16": (0, 1, 65535),
    "uint32": (0, 1, 2**32 - 1),
    "float64": (0.0, -1.0, 1e300),
}


MEANINGS: Final = {
    "member_epoch": (0, 0, 0, 1, 2, -1, -2, 2**31 - 1),
    "share_session_epoch": (0, 0, 1, 2, 3, -1),
    "session_epoch": (0, 0, 1, 1, 2, -1),
    "session_id": (0, 0, 1),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_700_000_000_000),
    "resource_type": (2, 2, 4, 4, 3, 5, 8, 16, 32, 0, 127),
}
"""Values with a meaning of their own. Of members and sessions: 0 joins or opens, -1 and -2 leave or close. Timestamps
of ListOffsets: the latest, the earliest, the largest timestamp (KIP-734), local (KIP-405) and tiered data (KIP-1005).
Types of resources: topics and brokers or the cluster, then the others.
"""
CONSUMER, SHARE, STREAMS = "fuzz-consumers", "fuzz-share", "fuzz-streams"
NEWER_GROUPS: Final = {
    **dict.fromkeys((8, 9), (*GROUPS, CONSUMER)),
    **dict.fromkeys((68, 69), (CONSUMER,)),
    **dict.fromkeys((76, 77, 78, 79, 90, 91, 92), (SHARE,)),
    **dict.fromkeys((88, 89), (STREAMS,)),
}
"""By API key. A group has one type, and refuses the requests of the others."""
NULL_SHARE: Final = 0.15
NULL_SHARES: Final = {"subscribed_topic_regex": 0.85, "instance_id": 0.7, "server_assignor": 0.6, "rack_id": 0.5}
"""A member that joins a group of KIP-848 may leave out the first three; with a pattern it must not name topics."""
LENGTHS: Final = {"topic_partitions": (0, 0, 0, 1)}
"""A member that joins owns no partitions."""
KNOWN_SHARE: Final = 0.9
RETURNED_SHARE: Final = 0.5
"""Of the fields for which the target returned a value."""
BROKER_SHARE: Final = 0.8
"""Of the ids of brokers: an assignment to one that does not exist is refused at once."""
RETURNED_KINDS: Final = frozenset({"string", "uuid", "int16", "int32", "int64"})


def generate(
    rng: random.Random, api: Api, version: int, returned: ResponseValues | None = None, *, filled: Collection[str] = ()
) -> Any:
    """Return a request that encodes in that version; values are often edge cases, or those that the target returned.

    The fields named in `filled` are not null, and arrays of them have one element.
    """
    return _Maker(rng, api.key, returned, filled).struct(message_layout(api.request, version))


@dataclass(frozen=True, slots=True)
class _Maker:
    rng: random.Random
    key: int
    returned: ResponseValues | None
    filled: Collection[str]

    def struct(self, layout: Layout) -> Any:
        values = {field.name: self._field(layout, field) for field in (*layout.in_line, *layout.tagged)}
        return layout.struct(**values)

    def _field(self, layout: Layout, field: Field) -> Any:
        if field.name in self.filled:
            return self._value(layout, field.name, field.type)
        if field.tag is not None and self.rng.random() < 0.7:
            return field.default
        if layout.is_nullable(field) and self.rng.random() < NULL_SHARES.get(field.name, NULL_SHARE):
            return None
        if field.name in WAITS:
            return WAITS[field.name]
        return self._value(layout, field.name, field.type)

    def _value(self, layout: Layout, name: str, kind: FieldType) -> Any:
        rng = self.rng
        if isinstance(kind, StructOf):
            return self.struct(layout.of(kind.struct))
        if isinstance(kind, ArrayOf):
            count = 1 if name in self.filled else rng.choice(LENGTHS.get(name, (0, 1, 1, 2)))
            return tuple(self._value(layout, name, kind.element) for _ in range(count))
        share = BROKER_SHARE if THING_OF.get(name) == "broker" else RETURNED_SHARE
        if self.returned is not None and kind.name in RETURNED_KINDS and rng.random() < share:
            value = self.returned.draw(rng, self.key, name, kind.name)
            if value is not None:
                return value
        if isinstance(kind, Fixed):
            return self._fixed(name, kind.name)
        if kind.name == "string":
            return self._text(name)
        return records(rng) if kind.name == "records" else rng.randbytes(rng.choice((0, 1, 5, 130)))

    def _text(self, name: str) -> str:
        if self.rng.random() >= KNOWN_SHARE:
            return self.rng.choice(("", "no/such name", "x" * 260))
        if self.key in {FETCH, LIST_OFFSETS, EPOCH_ENDS} and NAMES.get(name) is TOPICS:
            return self.rng.choice((*TOPICS, EMPTY_TOPIC))
        if name in {"group_id", "group_ids"} and self.key in NEWER_GROUPS:
            return self.rng.choice(NEWER_GROUPS[self.key])
        return self.rng.choice(NAMES.get(name, ("", "range", "consumer", "x" * 300, "ü\u0000")))

    def _fixed(self, name: str, kind: str) -> Any:
        rng = self.rng
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        if name in MEANINGS:
            return rng.choice(MEANINGS[name])
        if name in SMALL and rng.random() < 0.8:
            return rng.choice((-1, 0, 1)) if name in {"acks", "replica_id"} else rng.choice((0, 1))
        return rng.choice(EDGES[kind])


def records(rng: random.Random) -> bytes:
    """Return a valid record batch with a random compression."""
    count = rng.choice((1, 1, 3))
    codec = rng.choice(list(Compression))
    rows = [(1_700_000_000_000 + n, None, rng.randbytes(rng.choice((0, 10, 200))), ()) for n in range(count)]
    return build_batch(rows, compression=codec)
