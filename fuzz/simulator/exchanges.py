"""The requests of a traced run, each with its response, and which partitions and groups they name."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from highwater.reference.effects import Request, Response
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest

TOPIC_FIELDS: Final = ("name", "topic", "topic_name")
INDEX_FIELDS: Final = ("partition_index", "index", "partition", "partition_id")
NUMBER_LISTS: Final = ("partitions", "partition_indexes")
ERROR_FIELDS: Final = {"error_code", "partition_error_code"}


@dataclass
class SimulatedExchange:
    """A request, and its response if one was sent; times in ms."""

    at_ms: int
    source: str
    target: str
    body: Any
    answered_ms: int = -1
    answer: Any = None

    @property
    def name(self) -> str:
        """Return the name of the request, e.g. `OffsetCommit`."""
        return type(self.body).__name__.removesuffix("Request")

    @property
    def error(self) -> str:
        """Return the first error in the response, `NONE`, or `no response`."""
        return "no response" if self.answer is None else error_of(self.answer)

    @cached_property
    def partitions(self) -> frozenset[str]:
        """Return the partitions that the request names, as `t-0`."""
        return frozenset(name for name, _ in partitions_of(self.body))

    @cached_property
    def topics(self) -> frozenset[str]:
        """Return the topics that the request names."""
        listed = getattr(self.body, "topic_names", ())
        return (frozenset(map(topic_of, structs_in(self.body))) | frozenset(listed)) - {""}

    @cached_property
    def groups(self) -> frozenset[str]:
        """Return the groups that the request names."""
        return frozenset(_groups_of(self.body))


@dataclass(slots=True)
class Exchanges:
    """All requests of a run in the order in which they were sent, except the fetches of followers: steps show those."""

    sent: list[SimulatedExchange] = field(default_factory=list)
    _open: dict[tuple[str, str, int], SimulatedExchange] = field(default_factory=dict)

    def on_message(self, at_ms: int, source: str, target: str, message: object) -> None:
        """Record a request, or the response to one."""
        if isinstance(message, Request) and message.body is not None:
            if isinstance(message.body, FetchRequest) and message.body.replica_id >= 0:
                return
            exchange = SimulatedExchange(at_ms, source, target, message.body)
            self.sent.append(exchange)
            self._open[source, target, message.correlation_id] = exchange
        elif isinstance(message, Response):
            answered = self._open.pop((target, source, message.correlation_id), None)
            if answered is not None:
                answered.answered_ms, answered.answer = at_ms, message.body


def structs_in(body: Any) -> Iterator[Any]:
    """Yield a message and all its structures, at whatever depth, from the outside in."""
    pending = [body]
    while pending:
        part = pending.pop(0)
        yield part
        for name in getattr(part, "__dataclass_fields__", ()):
            value = getattr(part, name)
            values = value if isinstance(value, tuple) else (value,)
            pending += [item for item in values if is_struct(item)]


def is_struct(value: object) -> bool:
    """Return whether a value of a field is a structure of a message."""
    return hasattr(value, "__dataclass_fields__")


def partitions_of(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield each partition that a message names, as `t-0`, with its structure; None where only numbers are listed."""
    for part in structs_in(body):
        topic = topic_of(part)
        if not topic:
            continue
        for name in part.__dataclass_fields__:
            value = getattr(part, name)
            for item in value if isinstance(value, tuple) else ():
                if isinstance(item, int):
                    if name in NUMBER_LISTS:
                        yield f"{topic}-{item}", None
                elif (index := index_of(item)) is not None:
                    yield f"{topic}-{index}", item
        if (own := index_of(part)) is not None:
            yield f"{topic}-{own}", part


def topic_of(part: Any) -> str:
    """Return the name of a topic in a structure, or an empty string."""
    return next((value for name in TOPIC_FIELDS if isinstance(value := getattr(part, name, None), str)), "")


def index_of(part: Any) -> int | None:
    """Return the partition number in a structure, or None."""
    return next((getattr(part, name) for name in INDEX_FIELDS if isinstance(getattr(part, name, None), int)), None)


def _groups_of(body: Any) -> Iterator[str]:
    for part in structs_in(body):
        for name in ("group_id", "key"):
            if isinstance(group := getattr(part, name, None), str):
                yield group
        for name in ("groups", "groups_names", "coordinator_keys"):
            yield from (group for group in getattr(part, name, None) or () if isinstance(group, str))


def error_of(body: Any) -> str:
    """Return the first error code in a response, at whatever depth; `NONE` if there is none."""
    for part in structs_in(body):
        for name in ERROR_FIELDS & getattr(part, "__dataclass_fields__", {}).keys():
            if code := getattr(part, name):
                return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
    return ErrorCode.NONE.name
