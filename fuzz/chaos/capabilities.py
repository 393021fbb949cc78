"""What each kind of fault needs of real processes, and why it cannot be done where that is missing."""

from collections.abc import Iterable, Mapping
from typing import Final

from highwater.errors import UsageError
from highwater.faketime import missing_for_clocks
from highwater.fuzz.chaos.cluster import Field
from highwater.fuzz.chaos.disk.mount import missing_for_disk
from highwater.fuzz.schedule import EVERYTHING, KINDS, Fault, Schedule

PROCESSES: Final = "processes that can be started and ended here"
PROXY: Final = "a proxy before every node, which reference and apache-kafka get"
NEEDS: Final[Mapping[str, str]] = {
    "kill": PROCESSES,
    "bounce": PROCESSES,
    "pause": "processes that can be stopped and continued here",
    **dict.fromkeys(("cut", "clog", "delay", "loss", "disconnect", "throttle"), PROXY),
    "duplicate": "a transport that delivers twice, which TCP does not",
    **dict.fromkeys(("slow_flush", "fail_flush", "full_disk"), "a file system of ours below the log"),
    "rot": "the data folders of the nodes, as reference and apache-kafka have them here",
    "clock": "a wall clock of its own for each node",
    "expire": f"a metadata store behind {PROXY}, or processes that can be paused",
    "depose": "a metadata store that is ours to write to, as the simulator's is",
    "stall": "a client of ours",
}
OF_CLIENTS: Final = frozenset({"stall"})
OF_DISKS: Final = frozenset({"slow_flush", "fail_flush", "full_disk"})
LAUNCHED_HERE: Final = "reference or apache-kafka"


def missing(field: Field, kind: str) -> str:
    """What it lacks here; empty when it can be done."""
    if kind in field.faults or kind in OF_CLIENTS:
        return ""
    if kind in OF_DISKS:
        return f"{NEEDS[kind]}: {missing_for_disk() or LAUNCHED_HERE}"
    return f"{NEEDS[kind]}: {missing_for_clocks() or LAUNCHED_HERE}" if kind == "clock" else NEEDS[kind]


def refuse_unsupported(schedule: Schedule, field: Field, target: str) -> None:
    """UsageError at the first fault that cannot be done."""
    for number, fault in enumerate(schedule.faults):
        lacks = missing(field, "full_disk" if wants_disk(fault) else fault.kind)
        if fault.options.get("what", EVERYTHING) != EVERYTHING:
            lacks = "a network that tells messages from each other, as the simulator's does (`what`)"
        if lacks:
            raise UsageError(
                f"{fault.kind} is unsupported: it needs {lacks}", where=f"fault {number} on {target}",
                hint=f"here are: {', '.join(supported(field))}",
            )  # fmt: skip


def wants_disk(fault: Fault) -> bool:
    """SIGKILL leaves the page cache alone."""
    return fault.kind in OF_DISKS or (fault.kind == "kill" and fault.option("lose") != "nothing")


def wants_clock(fault: Fault) -> bool:
    return fault.kind == "clock"


def supported(field: Field) -> Iterable[str]:
    return [kind for kind in KINDS if not missing(field, kind)]
