"""Frozen dataclasses with slots that are made at the price of open ones.

`dataclass(frozen=True)` sets each field through `object.__setattr__`, which costs three times an assignment, and a
broker makes a dozen such objects for each request. Here an object is open while it is filled: of a class with the same
slots, whose name nobody has.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import update_wrapper
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """As `dataclass(frozen=True, slots=True)`; a default is a value, not a factory, and there is no `__post_init__`."""
    return filled_open(dataclass(frozen=True, slots=True)(cls))


def filled_open(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots an `__init__` that assigns."""
    own: Any = cls
    given = fields(own)
    names = [field.name for field in given]
    defaults = {field.name: field.default for field in given if field.default is not MISSING}
    keywords_only = any(field.kw_only for field in given)
    lines = [f"def __init__(self, {'*, ' if keywords_only and given else ''}{', '.join(names)}):"]
    lines += ["    turn(self, opened)", *(f"    self.{name} = {name}" for name in names), "    self.__class__ = cls"]
    made: dict[str, Any] = {}
    opened = type(cls.__name__, (), {"__slots__": tuple(names)})
    exec("\n".join(lines), {"turn": _turn, "opened": opened, "cls": cls}, made)
    init: Any = update_wrapper(made["__init__"], own.__init__)
    del init.__wrapped__
    if keywords_only:
        init.__kwdefaults__ = defaults
    else:
        init.__defaults__ = tuple(defaults.values())
    own.__init__ = init
    return cls


_turn: Callable[[object, type], None] = object.__dict__["__class__"].__set__
"""Changes the class of an object whose own class allows no assignment."""
