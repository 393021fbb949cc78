"""What a native class lacks to be used as a dataclass: its fields, its representation, and its schema as a message."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from highwater.reference.wire.schema import schema_from

T = TypeVar("T")
NONE: Final[Any] = dataclasses.MISSING


def register(cls: Any, described: Mapping[str, tuple[str, Any]]) -> None:
    """Give a native class the fields of a dataclass: annotation and default by name, in order."""
    made: Any = dataclasses.make_dataclass(
        cls.__name__,
        [(name, annotation, dataclasses.field(default=default)) for name, (annotation, default) in described.items()],
        kw_only=True,
    )
    cls.__dataclass_fields__ = made.__dataclass_fields__
    cls.__annotations__ = {name: annotation for name, (annotation, _) in described.items()}
    cls.__match_args__ = tuple(described)  # type: ignore[misc]
    if cls.__repr__ is object.__repr__:
        # A lambda is bound as a method is; a compiled function would be called without `self`.
        cls.__repr__ = lambda self: _representation(self)  # noqa: PLW0108


def declare(cls: Any, **marks: Any) -> None:
    """Give a native class the schema of a message."""
    cls.__schema__ = schema_from(**marks)


def replace(old: T, /, **changes: Any) -> T:
    """Return a copy with some fields changed, as `dataclasses.replace` does for a dataclass of Python."""
    fields: dict[str, object] = old.__dataclass_fields__  # type: ignore[attr-defined]
    for name in fields:
        if name not in changes:
            changes[name] = getattr(old, name)
    return type(old)(**changes)


def _representation(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__dataclass_fields__)
    return f"{type(self).__qualname__}({values})"
