"""Sound requests for every API and version, from the annotations, with names that mean something to a broker."""

import random
from typing import Any

from highwater.reference.wire.compression import Compression
from highwater.reference.wire.records import build_batch
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, Field, FieldType, Fixed, Layout, StructOf, message_layout

TOPICS = ("fuzz-a", "fuzz-b")
GROUPS = ("fuzz-group", "fuzz-group-2")
CLIENT_ID = "highwater-fuzz"

# Requests that a broker obeys and that would take the target away from us, or its data from others.
HARMFUL = {4, 5, 6, 7, 56}
# Fields that decide how long an answer may take: kept short, so that silence means something.
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


def generate(chance: random.Random, api: Api, version: int) -> Any:
    """A request that encodes in that version; its field values lean to the edges."""
    return _struct(chance, message_layout(api.request, version))


def _struct(chance: random.Random, layout: Layout) -> Any:
    values = {field.name: _field(chance, layout, field) for field in (*layout.in_line, *layout.tagged)}
    return layout.struct(**values)


def _field(chance: random.Random, layout: Layout, field: Field) -> Any:
    if field.tag is not None and chance.random() < 0.7:
        return field.default
    if layout.is_nullable(field) and chance.random() < 0.15:
        return None
    if field.name in WAITS:
        return WAITS[field.name]
    return _value(chance, layout, field.name, field.type)


def _value(chance: random.Random, layout: Layout, name: str, kind: FieldType) -> Any:
    if isinstance(kind, StructOf):
        return _struct(chance, layout.of(kind.struct))
    if isinstance(kind, ArrayOf):
        return tuple(_value(chance, layout, name, kind.element) for _ in range(chance.choice((0, 1, 1, 2))))
    if isinstance(kind, Fixed):
        return _fixed(chance, name, kind.name)
    if kind.name == "string":
        known = NAMES.get(name, ("", "range", "consumer", "x" * 300, "ü\u0000"))
        return chance.choice(known) if chance.random() < 0.9 else chance.choice(("", "no/such name", "x" * 260))
    return records(chance) if kind.name == "records" else chance.randbytes(chance.choice((0, 1, 5, 130)))


def _fixed(chance: random.Random, name: str, kind: str) -> Any:
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "uuid":
        return chance.choice((bytes(16), chance.randbytes(16)))
    if name in SMALL and chance.random() < 0.8:
        return chance.choice((-1, 0, 1)) if name in {"acks", "replica_id"} else chance.choice((0, 1))
    return chance.choice(EDGES[kind])


def records(chance: random.Random) -> bytes:
    """A sound record batch, of any compression."""
    count = chance.choice((1, 1, 3))
    codec = chance.choice(list(Compression))
    rows = [(1_700_000_000_000 + n, None, chance.randbytes(chance.choice((0, 10, 200))), ()) for n in range(count)]
    return build_batch(rows, compression=codec)
