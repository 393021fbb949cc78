"""Compare a whole reply with the expected one: a failure names the request, the path of the field, and both values."""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from highwater.conformance.broker import Broker, code_text
from highwater.conformance.cluster import Cluster
from highwater.conformance.failures import TargetFailure
from highwater.reference.wire.registry import api_of
from highwater.reference.wire.schema import Layout, message_layout

IDENTITY: Final = (
    *("group_id", "member_id", "name", "topic_id", "user", "partition_index", "resource_name", "resource_type"),
    *("entity", "entity_type", "key", "transactional_id", "node_id", "broker_id", "mechanism", "topic", "producer_id"),
)
"""Fields by which elements of two lists are paired: their order is the broker's choice."""
NOT_COMPARED: Final = frozenset({"throttle_time_ms"})
MESSAGE: Final = "error_message"


@dataclass(frozen=True, slots=True)
class Where:
    """In an expected reply, a value that the broker chooses: any for which `holds` is true."""

    description: str
    holds: Callable[[Any], bool]

    def __repr__(self) -> str:
        return self.description


ANYTHING: Final = Where("any value", lambda value: True)
TEXT: Final = Where("a text that is not empty", lambda value: isinstance(value, str) and bool(value))


def one_of(*values: Any) -> Where:
    """Return a value for an expected reply where Kafka permits several."""
    return Where(" or ".join(map(repr, values)), lambda value: value in values)


def compare(what: str, expected: Any, actual: Any, version: int) -> None:
    """Compare two messages of the same type in a version; raises TargetFailure for the first field that differs.

    Fields that the version lacks are expected to be decoded as their defaults. Lists of structs are compared without
    their order, other lists with it. A text for an error is expected only beside an error.
    """
    _compare_structs(what, expected, actual, message_layout(type(expected), version))


def eventually_equal(cluster: Cluster, what: str, expected: Any, read: Callable[[], Any], version: int) -> None:
    """Read a reply until it is as expected: a change reaches the brokers one after another.

    Raises the failure of the last reply after 10 s.
    """
    last: list[TargetFailure] = []

    def is_equal() -> bool:
        reply = read()
        try:
            compare(what, expected, reply, version)
        except TargetFailure as failure:
            last[:] = [failure]
            return False
        return True

    try:
        cluster.eventually(what, is_equal)
    except TargetFailure as failure:
        raise (last or [failure])[0] from None


def eventually_passes(cluster: Cluster, what: str, check: Callable[[], None]) -> None:
    """Repeat a check until it passes; raises the failure of its last repetition after 10 s."""

    def passes() -> bool:
        with suppress(TargetFailure):
            check()
            return True
        return False

    with suppress(TargetFailure):
        cluster.eventually(what, passes)
    check()


def _compare_structs(path: str, expected: Any, actual: Any, shape: Layout) -> None:
    missing = {field.name: field.default for field in shape.missing}
    for field in fields(expected):
        if field.name in NOT_COMPARED:
            continue
        inner, wanted, found = f"{path}: {field.name}", getattr(expected, field.name), getattr(actual, field.name)
        if field.name == MESSAGE:
            _compare_message(inner, actual)
        else:
            _compare_values(inner, missing.get(field.name, wanted), found, shape)


def _compare_message(path: str, actual: Any) -> None:
    if not actual.error_code and actual.error_message:
        raise TargetFailure(path, expected="no text without an error", actual=actual.error_message)


def _compare_values(path: str, expected: Any, actual: Any, shape: Layout) -> None:
    if isinstance(expected, Where):
        if not expected.holds(actual):
            raise TargetFailure(path, expected=expected.description, actual=repr(actual))
    elif isinstance(expected, tuple) and isinstance(actual, tuple) and any(map(is_dataclass, (*expected, *actual))):
        _compare_lists(path, expected, actual, shape)
    elif is_dataclass(expected) and type(expected) is type(actual):
        _compare_structs(path, expected, actual, shape.of(type(expected)))
    elif expected != actual:
        raise TargetFailure(path, expected=_value_text(path, expected), actual=_value_text(path, actual))


def _compare_lists(path: str, expected: tuple[Any, ...], actual: tuple[Any, ...], shape: Layout) -> None:
    inner = shape.of(type((*expected, *actual)[0]))
    missing = {field.name for field in inner.missing}
    wanted, found = ([(_identity(each, missing), each) for each in listed] for listed in (expected, actual))
    missed, extra = (Counter(key for key, _ in listed) for listed in (wanted, found))
    if missed != extra:
        raise TargetFailure(path, expected=_keys(missed - extra), actual=_keys(extra - missed))
    for (key, one), (_, other) in zip(_sorted(wanted), _sorted(found), strict=True):
        _compare_structs(f"{path}[{key}]", one, other, inner)


def _identity(element: Any, missing: Iterable[str]) -> str:
    """Return the identifying fields of an element as text; a struct without any is its own identity."""
    names = [name for name in IDENTITY if hasattr(element, name) and name not in missing]
    if getattr(element, "name", None):
        names = [name for name in names if name != "topic_id"]
    values = [getattr(element, name) for name in names]
    return ", ".join(map(shortened, values)) if values else repr(element)


def _sorted(listed: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return sorted(listed, key=lambda pair: (pair[0], repr(pair[1])))


def _keys(counted: Counter[str]) -> str:
    """Return the elements that only one side has."""
    return "; ".join(sorted(counted.elements())) or "no other element"


def _value_text(path: str, value: Any) -> str:
    return code_text(value) if path.endswith(": error_code") else shortened(value)


def shortened(value: Any) -> str:
    """Return the value as text, the middle of a long one left out."""
    text = value.hex() if isinstance(value, bytes) else str(value) if isinstance(value, str) and value else repr(value)
    return text if len(text) <= 200 else f"{text[:90]}...{text[-90:]} ({len(text)} characters)"


def spread(broker: Broker, request: type[Any], first: int = 0, last: int | None = None) -> list[int]:
    """Return the oldest, a middle and the newest version that both sides support, without duplicates.

    Raises Unsupported if there is none between `first` and `last`.
    """
    api = api_of(request)
    lowest, highest = broker.advertised.get(api.key, (0, -1))
    start = max(lowest, api.min_version, first)
    end = min(highest, api.max_version, api.max_version if last is None else last)
    if end < start:
        broker.need(request, start)
    return sorted({start, (start + end) // 2, end})
