"""Valid requests in which one array has thousands of elements: what is quadratic in them takes a broker seconds.

A broker handles such a request in milliseconds if it takes time in proportion to its elements. Each array of each API
is sent in turn, first with elements that have names, numbers and ids of their own, since a search for an element ends
early if it matches, then with equal ones.
"""

import random
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any, Final

from highwater.fuzz.wire.generate.cases import MANY, Case
from highwater.fuzz.wire.generate.requests import CLIENT_ID, generate
from highwater.fuzz.wire.oracles.malformed import enumerations, must_be_refused
from highwater.reference.wire.errors import EncodeError
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, FieldType, Fixed, Layout, Sized, StructOf, message_layout

ELEMENTS: Final = 8_000
FRAME_MAX: Final = 512 * 1024
"""Larger frames have fewer elements, so that reading one takes a broker no time that matters."""
ATTEMPTS: Final = 20
ONLY_ASKED: Final = {"validate_only": True, "allow_auto_topic_creation": False}
"""Thousands of topics would slow down the rest of the run."""
LASTING: Final = frozenset({3, 19, 30, 51})
"""API keys of requests that create what they name: topics, ACLs, credentials. Sent only with a field of ONLY_ASKED."""
NUMBERS: Final = frozenset({"partition", "partition_index", "partition_id", "index"})
"""Fields of an element that number it."""
NAME_START: Final = 64
UUID, STRING = Fixed("uuid", "16s"), Sized("string")
Path = tuple[str, ...]
"""Names of fields from the message to the array."""


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

    def __init__(self, rng: random.Random, served: Iterable[tuple[Api, int, int]]) -> None:
        self._rng = rng
        ranges = {api.key: (api, range(first, last + 1)) for api, first, last in served}
        sent = [
            (api, path, [version for version in versions if _may_be_sent(api, version, path)])
            for api, versions in ranges.values()
            for path in dict.fromkeys(chain.from_iterable(arrays(message_layout(api.request, v)) for v in versions))
        ]
        rng.shuffle(sent)
        self._turns = [(*turn, is_equal) for is_equal in (False, True) for turn in sent if turn[2]]
        self._next = 0

    def __len__(self) -> int:
        """Return the number of turns after which every array was drawn."""
        return len(self._turns)

    @property
    def are_all_sent(self) -> bool:
        """True once each array was drawn with different elements."""
        return 2 * self._next >= len(self._turns)

    def draw(self) -> Case | None:
        """Return the next case; None if no generated request can be encoded, or no API has an array."""
        if not self._turns:
            return None
        api, path, versions, is_equal = self._turns[self._next % len(self._turns)]
        self._next += 1
        version = max(self._rng.choices(versions, k=2))  # newer versions have more fields
        frame = self._frame(api, version, path, is_equal=is_equal)
        return None if frame is None else Case(api.key, version, (frame,), MANY, ".".join(path))

    def _frame(self, api: Api, version: int, path: Path, *, is_equal: bool) -> bytes | None:
        layout = message_layout(api.request, version)
        asked = {name: value for name, value in ONLY_ASKED.items() if name in _names(layout)}
        for _ in range(ATTEMPTS):
            request = replace(generate(self._rng, api, version, filled=path), **asked)
            request = _with_enumerated(self._rng, api.name, layout, request)
            with suppress(EncodeError):  # a value that this version cannot carry
                one, two = (_encoded(layout, request, path, count, is_equal=is_equal) for count in (1, 2))
                if must_be_refused(one) is None:
                    count = min(ELEMENTS, FRAME_MAX // max(1, len(two) - len(one)))
                    return _encoded(layout, request, path, count, is_equal=is_equal)
        return None


def _with_enumerated(rng: random.Random, api: str, layout: Layout, value: Any, path: str = "") -> Any:
    """Return the struct with a value of the enumeration in each field that has one, at any depth."""
    changed: dict[str, Any] = {}
    for field in layout.in_line:
        name, inner = path + field.name, getattr(value, field.name)
        if (values := enumerations().get((api, name))) is not None:
            changed[field.name] = rng.randint(values.first, values.last)
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf) and inner:
            of_element = layout.of(field.type.element.struct)
            changed[field.name] = tuple(_with_enumerated(rng, api, of_element, each, f"{name}.") for each in inner)
    return replace(value, **changed)


def _names(layout: Layout) -> set[str]:
    return {field.name for field in layout.in_line}


def _encoded(layout: Layout, request: Any, path: Path, count: int, *, is_equal: bool) -> bytes:
    longer = _lengthened(layout, request, path, count, is_equal=is_equal)
    return encode_request(longer, layout.version, 0, CLIENT_ID)


def _lengthened(layout: Layout, value: Any, path: Path, count: int, *, is_equal: bool) -> Any:
    """Return the struct with that many elements in the array; each array around it has one element."""
    name, *rest = path
    kind = next(field.type for field in layout.in_line if field.name == name)
    if not isinstance(kind, ArrayOf):
        assert isinstance(kind, StructOf), f"{name} is on the way to an array"
        inner = _lengthened(layout.of(kind.struct), getattr(value, name), tuple(rest), count, is_equal=is_equal)
        return replace(value, **{name: inner})
    (element,) = getattr(value, name)
    if rest:
        assert isinstance(kind.element, StructOf), f"{name} has elements with an array"
        inner = _lengthened(layout.of(kind.element.struct), element, tuple(rest), count, is_equal=is_equal)
        return replace(value, **{name: (inner,)})
    elements = [element] * count if is_equal else [_variant(layout, kind.element, element, n) for n in range(count)]
    return replace(value, **{name: tuple(elements)})


def _variant(layout: Layout, kind: FieldType, value: Any, number: int) -> Any:
    """Return a value like this one that differs with the number."""
    if isinstance(kind, StructOf):
        changed = {
            field.name: _variant(layout, field.type, getattr(value, field.name), number)
            for field in layout.of(kind.struct).in_line
            if field.name in NUMBERS or not isinstance(field.type, Fixed | ArrayOf | StructOf) or field.type == UUID
        }
        return replace(value, **changed)
    if value is None:
        return None
    if kind == UUID:
        return number.to_bytes(16, "big")
    if isinstance(kind, Fixed):
        return number % (1 << 8 * struct.calcsize(kind.code) - 1)
    return f"{value[:NAME_START]}-{number}" if kind == STRING else value


def _may_be_sent(api: Api, version: int, path: Path) -> bool:
    layout = message_layout(api.request, version)
    return path in arrays(layout) and (api.key not in LASTING or not _names(layout).isdisjoint(ONLY_ASKED))
