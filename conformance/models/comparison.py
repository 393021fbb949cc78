"""Compare a whole reply with the expected one: a failure names the request, the path of the field, and both values."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from highwater.conformance.expectations import code_text, failure_for
from highwater.conformance.failures import TargetFailure
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
            raise failure_for(path, actual)(path, expected=expected.description, actual=repr(actual))
    elif isinstance(expected, tuple) and isinstance(actual, tuple) and any(map(is_dataclass, (*expected, *actual))):
        _compare_lists(path, expected, actual, shape)
    elif is_dataclass(expected) and type(expected) is type(actual):
        _compare_structs(path, expected, actual, shape.of(type(expected)))
    elif expected != actual:
        texts = {"expected": _value_text(path, expected), "actual": _value_text(path, actual)}
        raise failure_for(path, actual)(path, **texts)


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
