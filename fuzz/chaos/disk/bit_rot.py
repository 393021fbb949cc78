"""Bit rot: flips a bit of the newest segment of a partition while its broker is down, as the simulator does."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from highwater.fuzz.chaos.nemesis import Inject, Undo
from highwater.fuzz.chaos.workload.topic import TOPIC
from highwater.fuzz.schedule import Fault
from highwater.reference.wire.log_entries import entries

CRC_START: Final = 21
"""Position from which a checksum covers a record batch, or an entry of an older message format."""
LOGS: Final = {"data": f"{TOPIC}-0", "offsets": "__consumer_offsets-*", "transactions": "__transaction_state-*"}


def rot_fault(folders: Callable[[], Mapping[str, Path]], kill: Inject) -> Inject:
    """Return the `rot` fault: kill the broker, flip a bit of a log, and restart it at the end.

    The log is partition 0 of the data, or the largest partition of an internal topic.
    """

    def begin(fault: Fault, node: str) -> Undo:
        undo = kill(Fault(at_ms=fault.at_ms, kind="kill", nodes=fault.nodes), node)
        logs = sorted(folders()[node].glob(LOGS[str(fault.option("of"))]), key=_size)
        if logs:
            rot_newest_segment(logs[-1], fault.number("bit"))
        return undo

    return begin


def _size(folder: Path) -> int:
    return sum(segment.stat().st_size for segment in folder.glob("*.log"))


def rot_newest_segment(folder: Path, bit: int) -> bool:
    """Flip one bit that a checksum covers; return False if the log is empty."""
    segments = sorted(folder.glob("*.log"))
    data = bytearray(segments[-1].read_bytes()) if segments else bytearray()
    covered = [
        covered_position
        for position, header in entries(bytes(data))
        for covered_position in range(position + CRC_START, position + header.size)
    ]
    if covered:
        data[covered[bit // 8 % len(covered)]] ^= 1 << bit % 8
        segments[-1].write_bytes(data)
    return bool(covered)
