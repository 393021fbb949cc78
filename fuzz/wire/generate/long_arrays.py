"""Valid requests in which one array has thousands of elements: what is quadratic in them takes a broker seconds.

A broker handles such a request in milliseconds if it takes time in proportion to its elements. Each array of each API
is sent in turn: with elements that have names, numbers and ids of their own, since a search for an element ends early
if it matches; with a few that have the longest names, which a pattern may take long to refuse; then with equal ones.
"""

import random
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from functools import cache
from itertools import chain
from typing import Any, Final

from highwater.fuzz.wire.generate.cases import MANY, Case
from highwater.fuzz.wire.generate.requests import CLIENT_ID, generate
from highwater.fuzz.wire.generate.response_values import ResponseValues
from highwater.fuzz.wire.oracles.malformed import enumerations, must_be_refused
from highwater.reference.wire.errors import EncodeError
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import (
    ZERO_UUID,
    ArrayOf,
    FieldType,
    Fixed,
    Layout,
    Sized,
    StructOf,
    message_layout,
)

ELEMENTS: Final = 12_000
NEW_PARTITIONS, PARTITIONS = ("topics", "assignments"), 9_000
"""The array of new partitions, and its elements: brokers limit them to 10,000."""
IN_ELEMENTS: Final = ("broker_ids",)
"""Arrays inside the elements that have one element, too."""
PREPARED_PARTITIONS, NEW_TOPIC = 1, "many"
FRAME_MAX: Final = 512 * 1024
"""Larger frames have fewer elements, so that reading one takes a broker no time that matters."""
ATTEMPTS: Final = 20
ONLY_ASKED: Final = {"validate_only": True, "allow_auto_topic_creation": False}
"""Thousands of topics would slow down the rest of the run."""
STRANGER: Final[Mapping[str, Any]] = {
    "generation_id_or_member_epoch": -1, "generation_id": -1, "member_id": "",
    "group_instance_id": None, "session_id": 0, "session_epoch": -1,
}  # fmt: skip
"""Of a client that is no member of its group, and that has no fetch session: with any other values most requests are
refused before the array.
"""
JOIN_GROUP: Final = 11
SESSION_MS: Final = 10_000
LASTING: Final = frozenset({3, 19, 30, 51})
"""API keys of requests that create what they name: topics, ACLs, credentials. Sent only with a field of ONLY_ASKED."""
NUMBERS: Final = frozenset({"partition", "partition_index", "partition_id", "index"})
"""Fields of an element that number it."""
NAME_START: Final = 8
UUID, STRING = Fixed("uuid", "16s"), Sized("string")
LONG_NAME: Final = "a" * 32_000 + "!"
Path = tuple[str, ...]
"""Names of fields from the message to the array."""


class Form(Enum):
    """How the elements of a long array differ."""

    DIFFERENT = auto()
    LONG_NAMES = auto()
    ONE_NAME = auto()
    """Only the last name differs, as the instance ids of members without a member id (KIP-345)."""
    EQUAL = auto()


@cache
def arrays(layout: Layout) -> tuple[Path, ...]:
    """Return the paths of the arrays of a message that are not in its tag section, outer ones first."""
    found: list[Path] = []
    for field in layout.in_line:
        inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(field.type, ArrayOf):
            found.append((field.name,))
        if isinstance(inner, StructOf):
            found += [(field.name, *path) for path in arrays(layout.of(inner.struct))]
    return tuple(found)


class LongArrays:
    """Draws requests with a long array: every array of every API that the target supports, in turn."""

    def __init__(
        self, rng: random.Random, served: Iterable[tuple[Api, int, int]], returned: ResponseValues | None = None
    ) -> None:
        self._rng, self._returned = rng, returned
        ranges = {api.key: (api, range(first, last + 1)) for api, first, last in served}
        sent = [
            (api, path, [version for version in versions if _may_be_sent(api, version, path)])
            for api, versions in ranges.values()
            for path in dict.fromkeys(chain.from_iterable(arrays(message_layout(api.request, v)) for v in versions))
        ]
        turns = [(*turn, form) for turn in sent if turn[2] for form in Form if _may_have(turn, form)]
        rng.shuffle(turns)
        self._turns = sorted(turns, key=lambda turn: (turn[3] is Form.EQUAL, len(turn[1]) > 1, turn[3].value))
        self._next = self._sent = 0

    def __len__(self) -> int:
        """Return the number of turns after which every array was drawn in each form."""
        return len(self._turns)

    def sent(self, cases: int) -> None:
        """Count requests that were sent."""
        self._sent += cases

    @property
    def are_all_sent(self) -> bool:
        """True once every array was sent in each form."""
        return self._sent >= len(self._turns)

    def report(self) -> str:
        """Return how many of the requests were sent."""
        return f"{min(self._sent, len(self))} of {len(self)} requests with a long array were sent alone"

    def draw(self) -> Case | None:
        """Return the next case; None if no generated request can be encoded, or no API has an array."""
        if not self._turns:
            return None
        api, path, versions, form = self._turns[self._next % len(self._turns)]
        self._next += 1
        version = max(self._rng.choices(versions, k=2))  # newer versions have more fields
        frame = self._frame(api, version, path, form)
        return None if frame is None else Case(api.key, version, (frame,), MANY, ".".join(path))

    def _frame(self, api: Api, version: int, path: Path, form: Form) -> bytes | None:
        layout = message_layout(api.request, version)
        names = _names(layout)
        asked = {name: value for name, value in ONLY_ASKED.items() if name in names}
        for _ in range(ATTEMPTS):
            known = {**STRANGER, **self._group(api)} if self._rng.random() < 0.7 else {}
            request = generate(self._rng, api, version, self._returned, filled=(*path, *IN_ELEMENTS))
            request = replace(request, **asked, **{name: known[name] for name in names & set(known)})
            request = _with_enumerated(self._rng, api.name, layout, request)
            with suppress(EncodeError):  # a value that this version cannot carry
                one, two = (_encoded(layout, request, path, count, form) for count in (1, 2))
                if must_be_refused(one) is None:
                    most = min(ELEMENTS, PARTITIONS) if path == NEW_PARTITIONS else ELEMENTS
                    count = min(most, FRAME_MAX // max(1, len(two) - len(one)))
                    return _encoded(layout, request, path, count, form)
        return None

    def _group(self, api: Api) -> dict[str, Any]:
        """Return the values of a group of its own, which accepts any protocols; a static member joins at once."""
        name = f"many-{self._rng.getrandbits(40):x}"
        joining = {"group_instance_id": name, "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS}
        return {"group_id": name} | (joining if api.key == JOIN_GROUP else {})


def _with_enumerated(rng: random.Random, api: str, layout: Layout, value: Any, path: str = "") -> Any:
    """Return the struct with a value of the enumeration in each field that has one, at any depth."""
    changed: dict[str, Any] = {}
    for field in layout.in_line:
        name, inner = path + field.name, getattr(value, field.name)
        if (values := enumerations().get((api, name))) is not None and not values.first <= inner <= values.last:
            changed[field.name] = rng.randint(values.first, values.last)
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf) and inner:
            of_element = layout.of(field.type.element.struct)
            changed[field.name] = tuple(_with_enumerated(rng, api, of_element, each, f"{name}.") for each in inner)
    return replace(value, **changed)


def _names(layout: Layout) -> set[str]:
    return {field.name for field in layout.in_line}


def _encoded(layout: Layout, request: Any, path: Path, count: int, form: Form) -> bytes:
    longer = _lengthened(layout, request, path, count, form)
    return encode_request(longer, layout.version, 0, CLIENT_ID)


def _lengthened(layout: Layout, value: Any, path: Path, count: int, form: Form) -> Any:
    """Return the struct with that many elements in the array; each array around it has one element."""
    name, *rest = path
    kind = next(field.type for field in layout.in_line if field.name == name)
    if not isinstance(kind, ArrayOf):
        assert isinstance(kind, StructOf), f"{name} is on the way to an array"
        inner = _lengthened(layout.of(kind.struct), getattr(value, name), tuple(rest), count, form)
        return replace(value, **{name: inner})
    (element,) = getattr(value, name)
    beside = _beside(layout, name, 1 if rest else count) | ({} if form is Form.EQUAL else _empty_arrays(layout, name))
    value = replace(value, **{field: own for field, own in beside.items() if field in _names(layout)})
    if rest:
        assert isinstance(kind.element, StructOf), f"{name} has elements with an array"
        inner = _lengthened(layout.of(kind.element.struct), element, tuple(rest), count, form)
        return replace(value, **{name: (inner,)})
    numbers = [0] * count if form is Form.EQUAL else range(count)
    return replace(value, **{name: tuple(_variant(layout, kind.element, element, number, form) for number in numbers)})


def _empty_arrays(layout: Layout, but: str) -> dict[str, Any]:
    """Return empty values for the other arrays of a struct: an error in one would hide the long one."""
    return {field.name: () for field in layout.in_line if isinstance(field.type, ArrayOf) and field.name != but}


def _beside(layout: Layout, name: str, count: int) -> dict[str, Any]:
    """Return values of fields beside an array with which its elements are looked at, and agree with its length."""
    fields: dict[str, Any] = {}
    if "num_partitions" in _names(layout):  # a topic that does not exist
        fields = {"name": NEW_TOPIC, "num_partitions": 1, "replication_factor": 1}
    if name == "assignments":
        fields |= {"num_partitions": -1, "replication_factor": -1, "count": PREPARED_PARTITIONS + count}
    return fields


def _variant(layout: Layout, kind: FieldType, value: Any, number: int, form: Form) -> Any:
    """Return a value like this one that differs with the number."""
    if isinstance(kind, StructOf):
        fields = layout.of(kind.struct).in_line
        changed = {
            field.name: _variant(layout, field.type, getattr(value, field.name), number, form)
            for field in fields
            if field.name in NUMBERS or isinstance(field.type, Sized) or field.type == UUID
        }
        if form is Form.ONE_NAME:
            names = [field.name for field in fields if field.type == STRING and changed[field.name] is not None]
            changed |= {name: getattr(value, name) for name in names[:-1]}
        is_named = any(field.type == STRING and changed[field.name] is not None for field in fields)
        ids = {field.name: ZERO_UUID for field in fields if field.type == UUID and is_named}
        return replace(value, **(changed | ids))  # a topic has a name or an id, not both
    if value is None:
        return None
    if kind == UUID:
        return number.to_bytes(16, "big")
    if isinstance(kind, Fixed):
        return number % (1 << 8 * struct.calcsize(kind.code) - 1)
    if kind != STRING:
        return value
    return f"{LONG_NAME if form is Form.LONG_NAMES else value[:NAME_START]}-{number}"


def _may_be_sent(api: Api, version: int, path: Path) -> bool:
    layout = message_layout(api.request, version)
    return path in arrays(layout) and (api.key not in LASTING or not _names(layout).isdisjoint(ONLY_ASKED))


def _may_have(turn: tuple[Api, Path, list[int]], form: Form) -> bool:
    """Return True if elements of the array can differ in that way, in one version at least."""
    api, path, versions = turn
    names = max(_count_names(message_layout(api.request, each), path) for each in versions)
    return names >= {Form.LONG_NAMES: 1, Form.ONE_NAME: 2}.get(form, 0)


def _count_names(layout: Layout, path: Path) -> int:
    """Return how many strings an element of the array has; 0 for an array that this version does not have."""
    for name in path:
        kind = next((field.type for field in layout.in_line if field.name == name), None)
        element = kind.element if isinstance(kind, ArrayOf) else kind
        if not isinstance(element, StructOf):
            return int(element == STRING)
        layout = layout.of(element.struct)
    return sum(field.type == STRING for field in layout.in_line)
