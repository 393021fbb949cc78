"""A fault schedule, the one type that the simulator (virtual time) and the process injector (real time) execute.

Times are absolute, so that leaving one fault out moves no other (`shrink`). Nodes are ids or roles, resolved when the
fault begins. As JSON a schedule reads::

    {"seed": 7, "duration_ms": 6000, "faults": [
      {"at_ms": 1200, "for_ms": 700, "kind": "kill", "nodes": ["leader(t,0)"], "options": {"lose": "unflushed"}},
      {"at_ms": 2500, "for_ms": 900, "kind": "cut", "nodes": ["1"], "options": {"direction": "out"}}]}
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.proxy.faults import parse_fault

Option = int | str
EVERYTHING: Final = "everything"
Choices = tuple[Option, ...]  # the first is the default; one number alone is a default of any size from 0 on

ROLE: Final = re.compile(r"(leader|followers)\([^,()]+,\d+\)|coordinator\([^()]+\)|controller|all|clients")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a fault does; `lasts`: `for_ms` is until when it is undone, and 0 means at the end of the run."""

    does: str
    lasts: bool = True
    options: Mapping[str, Choices] = field(default_factory=dict)


# `of`: the other end of the links that a fault breaks; an id, or `others`: everybody else, `brokers`, `clients`.
# `what`: the connection of these messages alone, such as `FetchRequest`: each kind then has one of its own.
LINK: Final[dict[str, Choices]] = {"direction": ("both", "out", "in"), "of": ("others",), "what": (EVERYTHING,)}

ROTTING_FILES: Final = (
    "offset index", "time index", "transaction index", "producer snapshot", "leader epochs", "checkpoints",
)  # fmt: skip

MESSAGE: Final = "message"
CLIENTS: Final = "clients"

KINDS: Final = {
    "kill": Kind(
        "the process ends without a word; started again afterwards. `lose`: what the disk forgets of what was not "
        "flushed: nothing, all of it, or all but some pages",
        options={"lose": ("nothing", "unflushed", "torn")},
    ),
    "bounce": Kind("the process is asked to end, and is started again afterwards"),
    "pause": Kind("the process stands still, and does not notice"),
    "cut": Kind("messages are lost", options=LINK),
    "clog": Kind("messages wait until the end of the fault", options=LINK),
    "delay": Kind("messages take `ms` and up to `spread_ms` more", options={**LINK, "ms": (50,), "spread_ms": (0,)}),
    "loss": Kind("of a thousand messages `per_mille` end their connection", options={**LINK, "per_mille": (20,)}),
    "disconnect": Kind("open connections end, and may be opened again at once", lasts=False, options=LINK),
    "duplicate": Kind("of a thousand messages `per_mille` arrive again later", options={**LINK, "per_mille": (100,)}),
    "throttle": Kind("so many bytes a second and no more", options={**LINK, "bytes_per_second": (65_536,)}),
    "slow_flush": Kind("a flush takes `ms`", options={"ms": (200,)}),
    "fail_flush": Kind("a flush fails"),
    "full_disk": Kind("nothing more can be written"),
    "rot": Kind(
        "a bit of the newest segment of a log flips while the process is down: of the data, or of an internal topic",
        options={"bit": (0,), "of": ("data", "offsets", "transactions")},
    ),
    "rot_file": Kind(
        "a bit of each file beside the segments of a log, or of each checkpoint, flips while the process is down",
        options={"bit": (0,), "of": ("data", "offsets", "transactions"), "file": ROTTING_FILES},
    ),
    "misdirect": Kind(
        "a write to the newest segment of a log hits another log instead, and the process ends",
        options={
            "bit": (0,),
            "of": ("data", "offsets", "transactions"),
            "instead": ("offsets", "data", "transactions"),
        },
    ),
    "volatile_disk": Kind(
        "the disk acknowledges flushes, or changes of names and sizes, that it does not store: a kill with `lose` "
        "undoes them",
        options={"about": ("flushes", "names")},
    ),
    "clock": Kind("the wall clock jumps `by_ms`, `back` or forth", options={"by_ms": (60_000,), "back": (0, 1)}),
    "expire": Kind("the session at the metadata store ends", lasts=False),
    "depose": Kind(
        "the controller's claim at the metadata store is deleted, as an operator may; its session goes on", lasts=False
    ),
    "stall": Kind("a client does not poll, but its heartbeats go on"),
    MESSAGE: Kind(
        "single messages are lost, late, repeated or answered with an error: `line` says which, as in `highwater proxy "
        "--list`; in the simulator also those between brokers",
        options={"line": ("any: delay 100 ms 1 %",)},
    ),
}


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`nodes`: broker ids (`"2"`), `"store"`, names of clients, or roles: `leader(topic,0)`, `followers(topic,0)`,
    `coordinator(group)`, `controller`, `all` (brokers), `clients` (of `message`)."""

    at_ms: int
    kind: str
    nodes: tuple[str, ...]
    for_ms: int = 0
    options: dict[str, Option] = {}

    def option(self, name: str) -> Option:
        """As given, or the default of the kind."""
        return self.options.get(name, KINDS[self.kind].options[name][0])

    def number(self, name: str) -> int:
        value = self.option(name)
        assert isinstance(value, int), name
        return value

    def __str__(self) -> str:
        lasting = "" if not KINDS[self.kind].lasts else f" for {self.for_ms} ms" if self.for_ms else " until the end"
        options = "".join(f" {name}={value}" for name, value in sorted(self.options.items()))
        return f"{self.at_ms:>6} ms  {self.kind} {' '.join(self.nodes)}{lasting}{options}"


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`seed` is of every other choice of the run; faults may overlap, and all are over after `duration_ms`.

    `node_settings`: broker settings by their Kafka names, by broker id, `*` for all.
    """

    duration_ms: int
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    node_settings: dict[str, dict[str, Option]] = {}

    def in_order(self) -> tuple[Fault, ...]:
        return tuple(sorted(self.faults, key=lambda fault: fault.at_ms))


def write_schedule(path: Path, schedule: Schedule) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(schedule)) + b"\n")


def read_schedule(path: Path, nodes: Collection[str] | None = None) -> Schedule:
    """A checked schedule; UsageError names file, fault and what is wrong with it (see `check`)."""
    try:
        schedule = msgspec.json.decode(path.read_bytes(), type=Schedule)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not a fault schedule: {error}", where=str(path)) from error
    check(schedule, nodes, where=str(path))
    return schedule


def check(schedule: Schedule, nodes: Collection[str] | None = None, *, where: str = "schedule") -> None:
    """UsageError at the first fault of unknown kind, node, option or time; `nodes` None: any id may be one."""
    if schedule.duration_ms <= 0:
        raise UsageError(f"duration_ms is {schedule.duration_ms}", where=where, hint="give a positive time")
    for number, fault in enumerate(schedule.faults):
        try:
            _check_fault(fault, schedule.duration_ms, nodes)
        except UsageError as error:
            raise UsageError(error.what, where=f"{where}: fault {number}", hint=error.hint) from None


def _check_fault(fault: Fault, duration_ms: int, nodes: Collection[str] | None) -> None:
    kind = KINDS.get(fault.kind)
    if kind is None:
        raise UsageError(f"unknown fault {fault.kind!r}", hint=f"known: {', '.join(KINDS)}")
    for name, value in (("at_ms", fault.at_ms), ("for_ms", fault.for_ms)):
        if value < 0:
            raise UsageError(f"{name} is negative ({value})", hint="times count from the start of the run")
    if fault.at_ms > duration_ms:
        raise UsageError(f"at_ms {fault.at_ms} is after the end", hint=f"the run takes {duration_ms} ms")
    if fault.for_ms and not kind.lasts:
        raise UsageError(f"{fault.kind} takes no time", hint="leave for_ms out")
    if not fault.nodes:
        raise UsageError("no nodes", hint="name at least one node or role")
    for node in fault.nodes:
        if nodes is not None and node not in nodes and not ROLE.fullmatch(node):
            raise UsageError(f"unknown node {node!r}", hint=f"known: {', '.join(nodes)}, or a role such as leader(t,0)")
    for name, given in fault.options.items():
        _check_option(fault.kind, kind, name, given)
    if fault.kind == MESSAGE:
        parse_fault(str(fault.option("line")))
    if (fault.kind == MESSAGE) != (CLIENTS in fault.nodes):
        raise UsageError(
            f"{fault.kind} at {' '.join(fault.nodes)}", hint=f"{MESSAGE}, and nothing else, is at `{CLIENTS}`"
        )


def _check_option(fault: str, kind: Kind, name: str, given: Option) -> None:
    choices = kind.options.get(name)
    if choices is None:
        raise UsageError(f"{fault} has no option {name!r}", hint=f"it has: {', '.join(kind.options) or 'none'}")
    default = choices[0]
    if type(given) is not type(default):
        raise UsageError(f"{name} is {given!r}", hint=f"give a {'number' if isinstance(default, int) else 'word'}")
    if len(choices) > 1 and given not in choices:
        raise UsageError(f"{name} is {given!r}", hint=f"one of: {', '.join(map(str, choices))}")
    if isinstance(given, int) and given < 0:
        raise UsageError(f"{name} is negative ({given})", hint="give a number from 0 on")


def shrink(schedule: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    """The fewest faults that still break what `breaks` tells: halves are left out first, then ever smaller parts."""
    faults = list(schedule.in_order())
    size = len(faults)
    while size > 0:
        start = 0
        while start < len(faults):
            fewer = faults[:start] + faults[start + size :]
            if breaks(msgspec.structs.replace(schedule, faults=tuple(fewer))):
                faults = fewer
            else:
                start += size
        size //= 2
    return msgspec.structs.replace(schedule, faults=tuple(faults))
