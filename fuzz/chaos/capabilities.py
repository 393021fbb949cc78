"""States what each kind of fault needs, and rejects schedules with faults that a cluster does not support."""

from collections.abc import Iterable, Mapping
from typing import Final

from highwater.errors import UsageError
from highwater.faketime import missing_for_clocks
from highwater.fuzz.chaos.cluster import ChaosCluster
from highwater.fuzz.chaos.disk.mount import missing_for_disk
from highwater.fuzz.schedule import EVERYTHING, KINDS, MESSAGE, Fault, Schedule

PROCESSES: Final = "processes that this command can start and stop"
PROXY: Final = "a proxy before every node, which only reference and apache-kafka have"
NEEDS: Final[Mapping[str, str]] = {
    "kill": PROCESSES,
    "bounce": PROCESSES,
    "pause": "processes that this command can pause and resume",
    **dict.fromkeys(("cut", "clog", "delay", "loss", "disconnect", "throttle"), PROXY),
    "duplicate": "a transport that delivers a message twice, and TCP does not",
    **dict.fromkeys(("slow_flush", "fail_flush", "full_disk"), "a mounted fault-injection file system below the log"),
    "rot": "access to the log directories of the nodes, which only reference and apache-kafka give",
    **dict.fromkeys(
        ("rot_file", "misdirect", "volatile_disk"), "a disk whose files can be changed one by one: the simulator's"
    ),
    "clock": "a separate wall clock for each node",
    "expire": f"a metadata store behind {PROXY}, or processes that can be paused",
    "depose": "a metadata store that the fault can write to, which only the simulator has",
    "stall": "a client of the workload",
    MESSAGE: "clients that connect through a proxy, which chaos starts",
}
CLIENT_FAULTS: Final = frozenset({"stall", MESSAGE})
DISK_FAULTS: Final = frozenset({"slow_flush", "fail_flush", "full_disk"})
LAUNCHED_TARGETS: Final = "the target reference or apache-kafka"


def missing(cluster: ChaosCluster, kind: str) -> str:
    """Return what the cluster lacks for a kind of fault, or an empty string if it supports the fault."""
    if kind in cluster.faults or kind in CLIENT_FAULTS:
        return ""
    if kind in DISK_FAULTS:
        return f"{NEEDS[kind]}: {missing_for_disk() or LAUNCHED_TARGETS}"
    return f"{NEEDS[kind]}: {missing_for_clocks() or LAUNCHED_TARGETS}" if kind == "clock" else NEEDS[kind]


def reject_unsupported(schedule: Schedule, cluster: ChaosCluster, target: str) -> None:
    """Raise UsageError for the first fault of the schedule that the cluster does not support."""
    for number, fault in enumerate(schedule.faults):
        lacks = missing(cluster, "full_disk" if wants_disk(fault) else fault.kind)
        if fault.options.get("what", EVERYTHING) != EVERYTHING:
            lacks = "a network that knows the type of each message (option `what`), which only the simulator has"
        if lacks:
            raise UsageError(
                f"{fault.kind} is unsupported: it needs {lacks}", where=f"fault {number} on {target}",
                hint=f"supported: {', '.join(supported(cluster))}",
            )  # fmt: skip


def wants_disk(fault: Fault) -> bool:
    """Return whether the fault needs the fault-injection file system.

    A kill needs it only to lose data: SIGKILL alone leaves the page cache intact.
    """
    return fault.kind in DISK_FAULTS or (fault.kind == "kill" and fault.option("lose") != "nothing")


def wants_clock(fault: Fault) -> bool:
    """Return whether the fault needs a separate wall clock for the node."""
    return fault.kind == "clock"


def supported(cluster: ChaosCluster) -> Iterable[str]:
    """Return the kinds of fault that the cluster supports."""
    return [kind for kind in KINDS if not missing(cluster, kind)]
