"""An operation of a client: invocation, completion if any, and their times in seconds."""

from typing import Any, NamedTuple

from highwater.spec.formats.history import Event

NS = 1e9
OUTCOMES = ("ok", "info", "fail")
ALONE = frozenset({"assign", "seek", "reset", "revoke", "lost", "crash", "subscribe", "begin_txn"})
"""Events of a client that are not part of an invocation and completion pair."""
NOTHING: dict[str, list[Any]] = {}


class Operation(NamedTuple):
    """An operation; `end_s` is None if it never returned. Times never decrease.

    `key` is its partition, if there is exactly one. `records` are the records it received, by partition: pairs of
    offset and value in the order of the reply.
    """

    invoke: Event
    completion: Event  # the completion, or the invocation where there is none
    start_s: float
    end_s: float | None
    outcome: str
    key: str | None
    records: dict[str, list[Any]]

    @property
    def client(self) -> str:
        return self.invoke.client or self.completion.client or ""


def operation(invoke: Event, done: Event | None, start_s: float, end_s: float | None) -> Operation:
    """Build an operation. Derived fields are computed once, as there may be ten million operations."""
    if done is None:
        return Operation(invoke, invoke, start_s, None, "info", _key(invoke), NOTHING)
    key = _key(invoke) or _key(done)
    records = NOTHING
    if done.value and done is not invoke:
        if invoke.f == "poll" and isinstance(done.value, dict):
            records = done.value
        elif invoke.f in {"fetch", "log_dump"} and key is not None and isinstance(done.value, list):
            records = {key: done.value}
    return Operation(invoke, done, start_s, end_s, done.type, key, records)


def _key(event: Event) -> str | None:
    return None if event.topic is None or event.partition is None else f"{event.topic}-{event.partition}"
