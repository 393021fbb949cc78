"""What belongs to no single partition: steps of transactions, groups and the cluster, one small table for a run."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from reports.columns import NEVER, UNKNOWN, Status


class Step(NamedTuple):
    """One operation on one subject. `subject` is a partition ("topic-0"), a group or a producer's name.

    What `number` and `epoch` mean follows from `f`: offset and generation of a `commit`, a `committed`, a `resume`
    and a `send_offsets`; generation of a `sync`, an `assign` and a `revoke`; leader and leader epoch of `metadata`;
    producer id and epoch of `init_producer`. `member` is the instance id where there is one, `position` where the
    process had read to, `calm_ms` how long no fault had begun or ended.
    """

    f: str
    invoked: int
    returned: int
    process: int
    status: Status
    subject: str
    number: int = UNKNOWN
    epoch: int = UNKNOWN
    group: str = ""
    member: str = ""
    node: str = ""
    txn: int = UNKNOWN
    position: int = UNKNOWN
    at_ms: int = 0
    calm_ms: int = 0
    text: str = ""

    @property
    def words(self) -> str:
        told = {
            "generation" if self.group else "epoch": self.epoch if self.epoch != UNKNOWN else "",
            "group": self.group,
            "member": self.member,
            "told by": self.node,
        }
        number = "" if self.number == UNKNOWN else f" {self.number}"
        what = f"{self.f.replace('_', ' ')} {self.subject}{number}{f' ({self.text})' if self.text else ''}"
        return ", ".join([what, *(f"{name} {value}" for name, value in told.items() if value != "")])


@dataclass(slots=True)
class Transactions:
    """By number: what became of each, and when its end was asked for (`NEVER`: it was not)."""

    names: list[str] = field(default_factory=list)
    fate: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    begun: list[bool] = field(default_factory=list)
    _numbers: dict[int | str, int] = field(default_factory=dict, init=False, repr=False)

    def number(self, name: int | str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(str(name))
            self.fate.append(UNKNOWN)
            self.ended.append(int(NEVER))
            self.begun.append(False)
        return self._numbers[name]


@dataclass(slots=True)
class Tables:
    transactions: Transactions = field(default_factory=Transactions)
    steps: dict[str, list[Step]] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        self.steps.setdefault(step.f, []).append(step)

    def of(self, *names: str) -> Iterator[Step]:
        for name in names:
            yield from self.steps.get(name, ())
