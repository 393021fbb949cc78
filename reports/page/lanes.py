"""Lanes of a timeline: one for each process, as long as there are not too many of them."""

from dataclasses import dataclass, field

from reports.page.operations import Operation

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
    """A process that comes when all lanes are taken shares the one that has been idle for longest.

    That is what a test does whose crashed processes are followed by others: they take the places of the crashed.
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
        """Numbers of the lanes as they are shown: clients together, processes ascending."""
        return sorted(range(len(self.lanes)), key=lambda number: self._rank(self.lanes[number]))

    def _rank(self, lane: Lane) -> tuple[str, str]:
        return lane.client, str(lane.processes[0]).zfill(12)

    def _new(self, operation: Operation) -> int:
        if len(self.lanes) < LANES:
            self.lanes.append(Lane(operation.client))
            return len(self.lanes) - 1
        alike = [n for n, lane in enumerate(self.lanes) if lane.client == operation.client]
        return min(alike or range(len(self.lanes)), key=lambda n: self.lanes[n].busy_until_s)
