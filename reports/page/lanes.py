"""Assign processes to the lanes of a timeline, one each while there are few processes."""

from dataclasses import dataclass, field

from highwater.reports.page.operations import NS, Operation
from highwater.spec.formats.history import Event

LANES = 64


@dataclass(slots=True)
class Lane:
    client: str
    processes: list[int | str] = field(default_factory=list)
    busy_until_s: float = 0.0

    @property
    def name(self) -> str:
        more = f" +{len(self.processes) - 1}" if len(self.processes) > 1 else ""
        return f"{self.client or 'process'} {self.processes[0]}{more}"


class Lanes:
    """Assigns lanes; a new process shares the lane idle for longest once all lanes are taken.

    In tests that replace crashed processes, a new process thus takes the lane of a crashed one.
    """

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self._of: dict[int | str, int] = {}

    def of(self, operation: Operation) -> int:
        process = operation.invoke.process
        number = self._of.get(process)
        if number is None:
            number = self._of[process] = self._new(operation)
            self.lanes[number].processes.append(process)
        lane = self.lanes[number]
        lane.busy_until_s = max(lane.busy_until_s, operation.start_s if operation.end_s is None else operation.end_s)
        return number

    @property
    def shared(self) -> bool:
        return any(len(lane.processes) > 1 for lane in self.lanes)

    def in_order(self) -> list[int]:
        """Return lane numbers in display order: by client, then by process."""
        return sorted(range(len(self.lanes)), key=lambda number: self._rank(self.lanes[number]))

    def _rank(self, lane: Lane) -> tuple[str, str]:
        return lane.client, str(lane.processes[0]).zfill(12)

    def _new(self, operation: Operation) -> int:
        if len(self.lanes) < LANES:
            self.lanes.append(Lane(operation.client))
            return len(self.lanes) - 1
        alike = [n for n, lane in enumerate(self.lanes) if lane.client == operation.client]
        return min(alike or range(len(self.lanes)), key=lambda n: self.lanes[n].busy_until_s)


# --------------------------------------------------------------------------------------------------
# The windows during which faults lasted, from the events of the nemesis.


ENDS = {"kill": "restart", "bounce": "restart", "pause": "resume"}
WORDS = {"kill": "down", "bounce": "restarting", "pause": "paused"}
NO_FAULT = {"phase", "header"}


@dataclass(frozen=True, slots=True)
class Window:
    """A fault on a node from `start_s` to `end_s`; both are equal for a momentary fault."""

    kind: str
    node: str
    start_s: float
    end_s: float

    @property
    def words(self) -> str:
        """Return a description without the time, such as "broker 2 down"."""
        where = f"broker {self.node}" if self.node.isdigit() else self.node
        return f"{where} {WORDS.get(self.kind, self.kind)}".strip()

    def overlaps(self, start_s: float, end_s: float) -> bool:
        return self.start_s <= end_s and self.end_s >= start_s


def windows(faults: list[Event], duration_s: float) -> list[Window]:
    """Return a window from each fault to the event that ends it on that node, or to the end."""
    ends = {*ENDS.values(), *(fault.f for fault in faults if fault.f.endswith(" over"))}
    found = []
    for number, fault in enumerate(faults):
        if fault.f in NO_FAULT or fault.f in ends:
            continue
        start_s = min(fault.time_ns / NS, duration_s)
        ending = {ENDS.get(fault.f, f"{fault.f} over"), "kill"}
        ends_s = (
            later.time_ns / NS for later in faults[number + 1 :] if later.f in ending and later.node == fault.node
        )
        momentary = fault.f not in ENDS and f"{fault.f} over" not in ends
        end_s = start_s if momentary else max(start_s, next(ends_s, duration_s))
        found.append(Window(fault.f, fault.node or "", start_s, end_s))
    return found
