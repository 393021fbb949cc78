"""Read the comparable part of a message as a short text names it.

`error_code topics.partitions(partition_index error_code)` reads the error code, and then these two fields of each
partition of each topic, as tuples in ascending order; with square brackets they keep the order of the message. A single
field in brackets is read without a tuple. A name also finds a field of a struct around the innermost one.

- `#name` counts the elements, or the records in bytes; `?name` is whether a number is not negative; `~name` reads null
  as an empty text; `it` is an element that is no struct; `@name` calls a function of `FUNCTIONS`.
- `name!` ends the tuple if the value is an error.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from highwater.conformance.client.broker import records_of

TOKEN: Final = re.compile(r"[\w.#?~@!]+|[()\[\]]")
CLOSED_BY: Final = {"(": ")", "[": "]"}
FEW: Final = 3
Chain = tuple[Any, ...]
"""A struct, after the structs that contain it."""


@dataclass(frozen=True, slots=True)
class Value:
    """One field; `kind` is one of `KINDS`."""

    name: str
    kind: str = ""
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Each:
    """What is read of each element of a list."""

    path: tuple[str, ...]
    inner: "Spec"
    is_sorted: bool


Spec = tuple[Value | Each, ...]


@cache
def parse(text: str) -> Spec:
    """Return what a text names. Raises ValueError for brackets that do not match."""
    return _parse(TOKEN.findall(text), "")[0]


def _parse(tokens: list[str], closing: str) -> tuple[Spec, list[str]]:
    found = list[Value | Each]()
    while tokens and tokens[0] != closing:
        name, *tokens = tokens
        if name in CLOSED_BY.values():
            raise ValueError(f"nothing opens {name}")
        if tokens and tokens[0] in CLOSED_BY:
            opening, *tokens = tokens
            inner, tokens = _parse(tokens, CLOSED_BY[opening])
            found.append(Each(tuple(name.split(".")), inner, opening == "("))
        else:
            kind = name[0] if name[0] in KINDS else ""
            found.append(Value(name.removeprefix(kind).removesuffix("!"), kind, name.endswith("!")))
    if closing and not tokens:
        raise ValueError(f"{closing} is missing")
    return tuple(found), tokens[1:]


def read(text: str, message: Any, world: Any = None) -> Any:
    """Return what a text names of a message; `world` is for functions."""
    return _read(parse(text), (message,), world)


def walk(message: Any, path: tuple[str, ...]) -> Iterator[Chain]:
    """Yield the elements of nested lists, each after those around it."""
    if not path:
        yield ()
        return
    for each in getattr(message, path[0]) or ():
        for inner in walk(each, path[1:]):
            yield each, *inner


def _read(spec: Spec, chain: Chain, world: Any) -> Any:
    if len(spec) == 1 and isinstance(spec[0], Value):
        return _value(spec[0], chain, world)
    values = list[Any]()
    for part in spec:
        if isinstance(part, Value):
            values.append(_value(part, chain, world))
            if part.ends and values[-1]:
                break
        else:
            found = [_read(part.inner, (*chain, *inner), world) for inner in walk(chain[-1], part.path)]
            values += sorted(found) if part.is_sorted else found
    return tuple(values)


def _value(part: Value, chain: Chain, world: Any) -> Any:
    if part.kind == "@":
        return FUNCTIONS[part.name](world, chain[-1])
    return KINDS[part.kind](_field(part.name, chain))


def _field(name: str, chain: Chain) -> Any:
    if name == "it":
        return chain[-1]
    holder = next((each for each in reversed(chain) if hasattr(each, name)), None)
    if holder is None:
        raise ValueError(f"{type(chain[-1]).__name__} has no field {name}, nor has a struct around it")
    return getattr(holder, name)


def _plain(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _count(value: Any) -> int:
    return len(records_of(value) if isinstance(value, bytes) else value or ())


KINDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "": _plain, "#": _count, "?": lambda value: value >= 0, "~": lambda value: value or "", "@": _plain,
}  # fmt: skip


# -- what no path names --------------------------------------------------------------------------------


def own_topics(world: Any, reply: Any) -> Any:
    """Return error code and name of the answers for the topic of the case: others may exist."""
    return tuple((found.error_code, found.name) for found in reply.topics if found.name == world.topic.name)


def settings(world: Any, resource: Any) -> str | tuple[str, ...]:
    """Return the names of the settings of a resource, or that there are many."""
    names = tuple(sorted(each.name for each in resource.configs))
    return names if len(names) < FEW else "many"


def next_partition(world: Any, reply: Any) -> int | None:
    """Return the partition at which the next page begins."""
    return reply.next_cursor.partition_index if reply.next_cursor else None


def own_folders(world: Any, reply: Any) -> tuple[Any, ...]:
    """Return the error code, the described partitions of the topic, and whether there are other topics."""
    topics = [topic for found in reply.results for topic in found.topics]
    own = [part.partition_index for topic in topics if topic.name == world.topic.name for part in topic.partitions]
    errors = {reply.error_code, *(found.error_code for found in reply.results)}
    others = any(topic.name != world.topic.name and topic.partitions for topic in topics)
    return max(errors), tuple(sorted(own)), others


def entries_of_group(world: Any, reply: Any) -> tuple[int, int]:
    """Return the error code, and how often the group of the case is listed."""
    return reply.error_code, [group.group_id for group in reply.groups].count(world.group)


def own_transactions(world: Any, replies: Any) -> tuple[int, str, tuple[str, ...]]:
    """Return the first error of all brokers, the listed transactions of the case, and the unknown states.

    The transactions are `o` for the open one and `e` for the empty one.
    """
    ids = [each.transactional_id for reply in replies for each in reply.transaction_states]
    found = "e" * ids.count(world.empty.id) + "o" * ids.count(world.opened.id)
    unknown = {state for reply in replies for state in reply.unknown_state_filters}
    return next((reply.error_code for reply in replies if reply.error_code), 0), found, tuple(sorted(unknown))


FUNCTIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    each.__name__: each
    for each in (own_topics, settings, next_partition, own_folders, entries_of_group, own_transactions)
}
