"""Faults that need nothing but the processes of a cluster."""

from fuzz.processes.nemesis import Inject, Processes, Undo
from fuzz.schedule import Fault


def process_faults(cluster: Processes) -> dict[str, Inject]:
    """By the names of `fuzz.schedule.KINDS`."""

    def node_of(name: str) -> int | str:
        return int(name) if name.isdigit() else name

    def start(name: str) -> Undo:
        return lambda: cluster.start_node(node_of(name))

    def kill(fault: Fault, name: str) -> Undo:
        cluster.kill_node(node_of(name))
        return start(name)

    def bounce(fault: Fault, name: str) -> Undo:
        cluster.stop_node(node_of(name))
        return start(name)

    def pause(fault: Fault, name: str) -> Undo:
        cluster.pause_node(node_of(name))
        return lambda: cluster.resume_node(node_of(name))

    return {"kill": kill, "bounce": bounce, "pause": pause}
