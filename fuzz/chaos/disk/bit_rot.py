"""Bit rot: a bit of the newest segment of a partition flips while its broker is down, as in the simulator."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from highwater.fuzz.chaos.nemesis import Inject, Undo
from highwater.fuzz.chaos.workload.topic import TOPIC
from highwater.fuzz.schedule import Fault
from highwater.reference.wire.log_entries import entries

CRC_COVERS: Final = 21
"""From here on in a record batch, and in a message of before."""


def rot_fault(folders: Callable[[], Mapping[str, Path]], kill: Inject) -> Inject:
    """The broker is killed for it, and started again afterwards; what it holds of partition 0 is hit."""

    def begin(fault: Fault, node: str) -> Undo:
        undo = kill(Fault(at_ms=fault.at_ms, kind="kill", nodes=fault.nodes), node)
        rot_newest_segment(folders()[node] / f"{TOPIC}-0", fault.number("bit"))
        return undo

    return begin


def rot_newest_segment(folder: Path, bit: int) -> bool:
    """Flip one bit that a checksum covers; False when nothing is stored."""
    segments = sorted(folder.glob("*.log"))
    data = bytearray(segments[-1].read_bytes()) if segments else bytearray()
    covered = [
        place
        for position, header in entries(bytes(data))
        for place in range(position + CRC_COVERS, position + header.size)
    ]
    if covered:
        data[covered[bit // 8 % len(covered)]] ^= 1 << bit % 8
        segments[-1].write_bytes(data)
    return bool(covered)
