"""What the target returned, for later requests: ids, epochs, offsets and names, by the name of their field.

A broker that gave a member, a producer or a topic an id serves most requests only with it, so a request with values of
its own making goes no deeper than the first check.
"""

import random
from collections import deque
from typing import Any, Final

from highwater.reference.wire.schema import ArrayOf, Fixed, Layout, Sized, StructOf

KEPT: Final = 24
"""Values of each name: the newest, since a broker forgets the others."""
TEXT_MAX: Final = 255
ELEMENTS_MAX: Final = 8
"""Of a list in a response: the others are alike."""
SAME: Final = {
    "offset": (
        "fetch_offset", "base_offset", "first_offset", "last_offset", "committed_offset", "high_watermark",
        "log_start_offset", "last_stable_offset", "start_offset", "end_offset",
    ),
    "member epoch": ("generation_id", "member_epoch", "generation_id_or_member_epoch"),
    "leader epoch": ("leader_epoch", "current_leader_epoch", "last_fetched_epoch", "committed_leader_epoch"),
    "group": ("group_id", "group_ids", "groups", "groups_names"),
    "topic": ("topic", "topic_name"),
    "broker": ("node_id", "broker_id", "broker_ids", "replicas", "replica_nodes"),
}  # fmt: skip
"""Names of one thing in requests and responses."""
THING_OF: Final = {name: thing for thing, names in SAME.items() for name in names}
KINDS: Final = frozenset({"int16", "int32", "int64", "uuid", "string"})
LEFT_OUT: Final = frozenset({"error_code", "error_message", "throttle_time_ms", "host", "port", "rack"})

ANY: Final = -1
OWN_SHARE: Final = 0.7
Thing = tuple[int, str, str]
"""The API, the thing that a field names, and the kind of its value."""


class ResponseValues:
    """The newest values of each thing, of each API and of all: a member of one API is none of another."""

    def __init__(self) -> None:
        self._values: dict[Thing, deque[Any]] = {}

    def note(self, key: int, layout: Layout, message: Any) -> None:
        """Take note of the values in a response to the API with that key."""
        for field in (*layout.in_line, *layout.tagged):
            kind, value = field.type, getattr(message, field.name)
            elements = value if isinstance(kind, ArrayOf) else (value,)
            kind = kind.element if isinstance(kind, ArrayOf) else kind
            for element in (elements or ())[:ELEMENTS_MAX]:
                if isinstance(kind, StructOf) and element is not None:
                    self.note(key, layout.of(kind.struct), element)
                elif isinstance(kind, Fixed | Sized) and kind.name in KINDS and field.name not in LEFT_OUT:
                    thing = THING_OF.get(field.name, field.name), kind.name
                    self._add((key, *thing), element)
                    self._add((ANY, *thing), element)

    def _add(self, thing: Thing, value: Any) -> None:
        if (
            not value
            or (isinstance(value, bytes) and not any(value))
            or (isinstance(value, str) and len(value) > TEXT_MAX)
        ):
            return
        values = self._values.setdefault(thing, deque(maxlen=KEPT))
        if value in values:
            values.remove(value)  # so that what returns stays
        values.append(value)

    def draw(self, rng: random.Random, key: int, name: str, kind: str) -> Any | None:
        """Return a value for a field of that name and kind, mostly one of the same API; None if there is none."""
        thing = THING_OF.get(name, name), kind
        own = self._values.get((key, *thing))
        values = own if own and rng.random() < OWN_SHARE else self._values.get((ANY, *thing))
        return rng.choice(values) if values else None
