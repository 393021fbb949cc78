"""Comparisons of what a target returned with what a clause, or a model, expects."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, TypeVar

from highwater.conformance.failures import Disturbed, Required, TargetFailure
from highwater.reference.wire.errors import RETRIABLE, ErrorCode

T = TypeVar("T")
ERROR_NAMES: Final[Mapping[int, str]] = {code.value: code.name for code in ErrorCode}


def only(items: tuple[T, ...]) -> T:
    """Return the only element; raises TargetFailure for any other number."""
    if len(items) != 1:
        raise TargetFailure("entries in the reply", expected="exactly 1", actual=str(len(items)))
    return items[0]


def expect(what: str, expected: object, actual: object) -> None:
    """Raise TargetFailure unless `actual` equals `expected`, or is in it if it is a set."""
    allowed: Collection[object] = expected if isinstance(expected, set | frozenset) else (expected,)
    if actual not in allowed:
        shown = partial(value_text, what)
        kind = failure_for(what, actual)
        raise kind(what, expected=" or ".join(sorted(map(shown, allowed))), actual=shown(actual))


def require(what: str, expected: object, actual: object) -> None:
    """Raise Required unless `actual` equals `expected`, or is in it if it is a set: under every fault."""
    try:
        expect(what, expected, actual)
    except TargetFailure as failure:
        raise Required(what, expected=failure.expected, actual=failure.actual) from None


def failure_for(what: str, actual: object) -> type[TargetFailure]:
    """Return the exception for an unexpected value, which for an error, or a tuple that begins with one, may pass."""
    code = actual[0] if isinstance(actual, tuple) and actual else actual
    return Disturbed if "error" in what and isinstance(code, int) and code in RETRIABLE else TargetFailure


def value_text(what: str, value: object) -> str:
    """Return the value as text, with the name of an error code: of a tuple that `what` calls `error code and ...`,
    the first element is one; of `error codes` all numbers are.
    """
    if "error codes" in what:
        return _codes_text(value)
    if "error code" not in what:
        return str(value)
    if isinstance(value, tuple | list) and value:
        return f"({', '.join([_codes_text(value[0]), *map(repr, value[1:])])})"
    return _codes_text(value)


def _codes_text(value: object) -> str:
    """Return error codes with their names, in tuples and as values of a mapping, too."""
    if isinstance(value, int) and not isinstance(value, bool):
        return code_text(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_codes_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_codes_text(each)}' for key, each in value.items())}}}"
    return str(value)


def code_text(code: int) -> str:
    """Return an error code with its name, such as `42 (INVALID_REQUEST)`."""
    name = ERROR_NAMES.get(code)
    return f"{int(code)} ({name})" if name else str(code)
