"""Check events before the audit, whatever format they were imported from."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from highwater.reports.importers.quarantine import Quarantine
from highwater.spec.formats.history import NEMESIS, Event

MAX_OFFSET: Final = 2**63 - 1
Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
Marked = Annotated[int, msgspec.Meta(ge=-1, le=MAX_OFFSET)]  # -1 means none
Key = Annotated[str, msgspec.Meta(pattern=r"^.+-[0-9]{1,9}$")]  # "topic-0"
Records = list[tuple[Offset, Any]]

# The type of a non-null value, by operation; values of other operations are not checked.
VALUES: Final[dict[str, Any]] = {
    "poll": dict[Key, Records],
    "fetch": Records,
    "log_dump": Records,
    "commit": dict[Key, Marked],
    "committed": dict[Key, Marked],
    "send_offsets": dict[Key, Marked],
    "delete_offsets": list[Key],
    "sync": list[Key],
    "assign": list[Key],
    "seek": list[Key],
    "reset": list[Key],
    "revoke": list[Key],
    "lost": list[Key],
    "metadata": dict[Key, tuple[int, int]],
    "in_sync": dict[Key, list[int]],
}
# msgspec caches struct types; it would inspect any other type again for every value, which is slower.
SHAPES: Final = {f: msgspec.defstruct(f, [("value", kind)], array_like=True) for f, kind in VALUES.items()}
PLACED: Final = {"send", "fetch", "list_offsets", "log_dump", "delete_records"}
# Events that are not part of an invocation and completion pair.
ALONE: Final = {"assign", "seek", "reset", "revoke", "lost", "crash", "subscribe", "begin_txn", "header", "phase"}


def sound(
    events: Iterator[Event], quarantine: Quarantine, opened: dict[int | str, str] | None = None
) -> Iterator[Event]:
    """Yield valid events: completions that have an invocation, values of the right type.

    `opened` has the open operation of each process, of a history that was read in part before.

    Events are ordered by index. Backward steps of the clock are counted; rules that need time are then undecided.
    """
    opened = {} if opened is None else opened
    convert = msgspec.convert
    latest = 0
    for event in events:
        f, process, value, time_ns = event.f, event.process, event.value, event.time_ns
        if time_ns < latest:
            quarantine.clock_steps_back += 1
        latest = time_ns
        if process == NEMESIS:
            yield event
            continue
        if value is not None and f in SHAPES:
            try:
                convert((value,), SHAPES[f])
            except msgspec.ValidationError as error:
                quarantine.add(f"{f}: {str(error).replace('$[0]', '$').removesuffix(' - at `$`')}")
                continue
        if f in ALONE:
            yield event
        elif event.type == "invoke":
            if f in PLACED and (event.topic is None or event.partition is None):
                quarantine.add(f"{f} names no topic and partition")
                continue
            opened[process] = f
            yield event
        elif opened.get(process) == f:
            del opened[process]
            yield event
        else:
            quarantine.add(f"process {process} completes {f!r} that it has not invoked, or completed before")
