"""Invariant of a consume-transform-produce client: the output has each committed input once, in order (KIP-447)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from highwater.fuzz.simulator.cluster import OUTPUT_TOPIC, TOPIC
from highwater.fuzz.simulator.invariants.contents import CommittedContents
from highwater.fuzz.simulator.invariants.violations import SituationCounts, Violated


@dataclass(slots=True)
class ObservedTransform:
    """Checks TransformedOnce whenever a record of the output becomes visible to read_committed consumers.

    Once a broker has flipped bits (`rotten`), an input partition may not be read for a while, so nothing is checked.
    """

    inputs: Mapping[int, CommittedContents]
    rotten: set[int]
    situations: SituationCounts
    violated: Violated
    output: CommittedContents = field(init=False)
    _next: dict[int, int] = field(default_factory=dict)  # input partition -> offset after the last one in the output

    def __post_init__(self) -> None:
        self.output = CommittedContents(f"{OUTPUT_TOPIC}-0", self.violated, self._check)

    def _check(self, offset: int) -> None:
        if self.rotten:
            return
        number, source, value = (self.output.values[offset] or b"").split(b" ", 2)
        contents, start = self.inputs[int(number)], self._next.get(int(number), 0)
        expected = next(contents.between(start, contents.end, read_committed=True), None)
        if expected != (int(source), value):
            self.violated(
                "TransformedOnce",
                f"the output has {TOPIC}-{int(number)} offset {int(source)} {value!r}; the next input is {expected}",
            )
        self.situations.add("transformed record")
        self._next[int(number)] = int(source) + 1
