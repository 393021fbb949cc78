"""Resolve the names in a table: what begins with `$` is of the world, what begins with `~` changes the usual value."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from highwater.conformance.cases.fields.world import World
from highwater.conformance.client.broker import Topic, batch

BATCH: Final = batch(b"v")
CONSTANTS: Final[Mapping[str, Any]] = {
    "null": None,
    "int16_min": -(2**15), "int16_max": 2**15 - 1, "int32_min": -(2**31), "int32_max": 2**31 - 1,
    "int64_min": -(2**63), "int64_max": 2**63 - 1,
    "other_producer": 10**15, "other_id": b"\1" * 16, "x250": "x" * 250, "x1000": "x" * 1000,
    "batch": BATCH, "two_batches": BATCH * 2, "flipped_batch": BATCH[:-1] + b"\x7f",
    "moved_batch": batch(b"v", base_offset=1000, partition_leader_epoch=1000),
}  # fmt: skip
OPERATORS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "upper": str.upper,
    "blank": lambda text: text + " ",
    "blank_before": lambda text: " " + text,
    "line_break": lambda text: text + "\n",
    "comma": lambda text: text + ",",
    "colon": lambda text: text + ":",
    "dots": lambda text: "..." + text,
    "249": lambda text: text.ljust(249, "x"),
    "longer": lambda text: text + text[-1:],
    "beginning": lambda text: text[:-1],
    "end": lambda text: text[1:],
    "none": lambda text: text + "-none",
    "inside": lambda text: text + "/x",
    "+1": lambda number: number + 1,
    "-1": lambda number: number - 1,
}
PER_REQUEST: Final[Mapping[str, Callable[[World], Any]]] = {
    "new_group": lambda world: world.cluster.group(),
    "new_id": lambda world: world.cluster.name("x"),
    "stable": World.stable_member,
    "joined": World.joined_member,
    "group_with_offset": World.group_with_offset,
    "group_beside": World.group_beside,
    "topic_name": lambda world: world.cluster.topic_name(),
    "small_topic": World.small_topic,
    "existing": World.existing,
    "user": World.user,
}
"""What a request has for itself, however often its fields name it."""
SEVERAL: Final = frozenset({"existing", "user"})
"""Of these a request may have more, such as `$user.a` and `$user.b`."""
PRODUCERS: Final[Mapping[str, Callable[[World], Any]]] = {
    "new producer": World.new_producer, "open producer": World.open_producer,
    "committed producer": World.committed_producer, "adding producer": World.adding_producer,
}  # fmt: skip


class RowValues:
    """The values of one request; `producer` says which one `$producer` is."""

    def __init__(self, world: World, producer: str = "new producer") -> None:
        self._world, self._makers = world, {**PER_REQUEST, "producer": PRODUCERS[producer]}
        self._known: dict[tuple[str, ...], Any] = {}

    def resolve(self, value: Any, number: int = 0) -> Any:
        """Return a value with all names in it resolved; `number` is that of the item."""
        if isinstance(value, dict):
            return {key: self.resolve(each, number) for key, each in value.items()}
        if isinstance(value, list | tuple | frozenset):
            return type(value)(self.resolve(each, number) for each in value)
        if not isinstance(value, str) or not value.startswith("$"):
            return value
        named, *operators = value[1:].split(" ")
        found = self._named(*named.split("."), number=number)
        for operator in operators:
            found = OPERATORS[operator](found)
        return found

    def fields(self, usual: Mapping[str, Any], changes: Mapping[str, Any], number: int = 0) -> dict[str, Any]:
        """Return the usual fields with changes, resolved."""
        found = dict[str, Any]()
        for name, value in {**usual, **changes}.items():
            if isinstance(value, str) and value.startswith("~"):
                found[name] = OPERATORS[value[1:]](self.resolve(usual[name], number))
            else:
                found[name] = self.resolve(value, number)
        return found

    def _named(self, first: str, *rest: str, number: int) -> Any:
        if first == "number":
            return number
        if first in CONSTANTS:
            return CONSTANTS[first]
        if first == "existing_id":
            return self._world.id_of(self._named("existing", *rest, number=number))
        key, attributes = (rest[:1], rest[1:]) if first in SEVERAL else ((), rest)
        found = self._made(first, *key) if first in self._makers else getattr(self._world, first)
        for attribute in attributes:
            found = found(attribute) if callable(found) else getattr(found, attribute)
        found = found(number) if callable(found) else found
        return found.name if isinstance(found, Topic) else found

    def _made(self, *name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._makers[name[0]](self._world)
        return self._known[name]
