"""Generate valid requests for every API and version from the message classes, with topic and group names that exist."""

import random
from typing import Any, Final

from highwater.fuzz.wire.generate.learned import Learned
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.records import build_batch
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, Field, FieldType, Fixed, Layout, StructOf, message_layout

TOPICS = ("fuzz-a", "fuzz-b")
GROUPS = ("fuzz-group", "fuzz-group-2")
CLIENT_ID = "highwater-fuzz"

# Requests that a broker obeys and that would stop it, or delete data.
HARMFUL = {4, 5, 6, 7, 56}
# Timeouts of requests: kept short, so that a missing response is a failure.
WAITS = {"max_wait_ms": 50, "timeout_ms": 500, "rebalance_timeout_ms": 1_000, "session_timeout_ms": 6_000}
NAMES = {"topic": TOPICS, "name": TOPICS, "topic_name": TOPICS, "group_id": GROUPS, "key": GROUPS,
         "groups": GROUPS, "groups_names": GROUPS, "coordinator_keys": GROUPS}  # fmt: skip
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


LEARNED_SHARE: Final = 0.6
"""Of the fields for which the target returned a value."""
LEARNABLE: Final = frozenset({"string", "uuid", "int16", "int32", "int64"})


def generate(rng: random.Random, api: Api, version: int, learned: Learned | None = None) -> Any:
    """Return a request that encodes in that version; values are often edge cases, or those that the target returned."""
    return _struct(rng, message_layout(api.request, version), learned)


def _struct(rng: random.Random, layout: Layout, learned: Learned | None) -> Any:
    values = {field.name: _field(rng, layout, field, learned) for field in (*layout.in_line, *layout.tagged)}
    return layout.struct(**values)


def _field(rng: random.Random, layout: Layout, field: Field, learned: Learned | None) -> Any:
    if field.tag is not None and rng.random() < 0.7:
        return field.default
    if layout.is_nullable(field) and rng.random() < 0.15:
        return None
    if field.name in WAITS:
        return WAITS[field.name]
    return _value(rng, layout, field.name, field.type, learned)


def _value(rng: random.Random, layout: Layout, name: str, kind: FieldType, learned: Learned | None) -> Any:
    if isinstance(kind, StructOf):
        return _struct(rng, layout.of(kind.struct), learned)
    if isinstance(kind, ArrayOf):
        return tuple(_value(rng, layout, name, kind.element, learned) for _ in range(rng.choice((0, 1, 1, 2))))
    if learned is not None and kind.name in LEARNABLE and rng.random() < LEARNED_SHARE:
        value = learned.draw(rng, name, kind.name)
        if value is not None:
            return value
    if isinstance(kind, Fixed):
        return _fixed(rng, name, kind.name)
    if kind.name == "string":
        known = NAMES.get(name, ("", "range", "consumer", "x" * 300, "ü\u0000"))
        return rng.choice(known) if rng.random() < 0.9 else rng.choice(("", "no/such name", "x" * 260))
    return records(rng) if kind.name == "records" else rng.randbytes(rng.choice((0, 1, 5, 130)))


def _fixed(rng: random.Random, name: str, kind: str) -> Any:
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "uuid":
        return rng.choice((bytes(16), rng.randbytes(16)))
    if name in SMALL and rng.random() < 0.8:
        return rng.choice((-1, 0, 1)) if name in {"acks", "replica_id"} else rng.choice((0, 1))
    return rng.choice(EDGES[kind])


def records(rng: random.Random) -> bytes:
    """Return a valid record batch with a random compression."""
    count = rng.choice((1, 1, 3))
    codec = rng.choice(list(Compression))
    rows = [(1_700_000_000_000 + n, None, rng.randbytes(rng.choice((0, 10, 200))), ()) for n in range(count)]
    return build_batch(rows, compression=codec)
