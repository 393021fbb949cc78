"""Windows in which a fault lasted, from the events of the nemesis."""

from dataclasses import dataclass

from reports.page.operations import NS
from spec.formats.history import Event

ENDS = {"kill": "restart", "bounce": "restart", "pause": "resume"}
WORDS = {"kill": "down", "bounce": "restarting", "pause": "paused"}
NO_FAULT = {"phase", "header"}


@dataclass(frozen=True, slots=True)
class Window:
    """A node was down, paused or cut off from `start_s` to `end_s`; what takes no time ends as it begins."""

    kind: str
    node: str
    start_s: float
    end_s: float

    @property
    def words(self) -> str:
        """Without the time: "broker 2 down"."""
        where = f"broker {self.node}" if self.node.isdigit() else self.node
        return f"{where} {WORDS.get(self.kind, self.kind)}".strip()

    def overlaps(self, start_s: float, end_s: float) -> bool:
        return self.start_s <= end_s and self.end_s >= start_s


def windows(faults: list[Event], duration_s: float) -> list[Window]:
    """From each fault to what ends it on that node: `restart`, `resume`, `FAULT over`, a kill, or the end of all."""
    overs = {*ENDS.values(), *(fault.f for fault in faults if fault.f.endswith(" over"))}
    found = []
    for number, fault in enumerate(faults):
        if fault.f in NO_FAULT or fault.f in overs:
            continue
        start_s = min(fault.time_ns / NS, duration_s)
        enders = {ENDS.get(fault.f, f"{fault.f} over"), "kill"}
        later = (each.time_ns / NS for each in faults[number + 1 :] if each.f in enders and each.node == fault.node)
        momentary = fault.f not in ENDS and f"{fault.f} over" not in overs
        end_s = start_s if momentary else max(start_s, next(later, duration_s))
        found.append(Window(fault.f, fault.node or "", start_s, end_s))
    return found
