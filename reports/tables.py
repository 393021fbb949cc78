"""What belongs to no single partition: steps of transactions, groups and the cluster, one small table for a run."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from highwater.reports.columns import NEVER, UNKNOWN, Ints, Status


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
    fate: "array[int]" = field(default_factory=lambda: array("b"))
    ended: "array[int]" = field(default_factory=lambda: array("q"))
    begun: "array[int]" = field(default_factory=lambda: array("b"))
    _numbers: dict[int | str, int] = field(default_factory=dict, repr=False)

    def number(self, name: int | str) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.fate)
            self.names.append(str(name))
            self.fate.append(UNKNOWN)
            self.ended.append(int(NEVER))
            self.begun.append(False)
        return found

    def name(self, number: int) -> str:
        return self.names[number]

    def columns(self) -> tuple[Ints, Ints]:
        """Fate and end by number, and one more cell for no transaction.

        Without a beginning nobody knows whether its end would have been recorded.
        """
        fate, ended = (np.append(np.asarray(each, np.int64), np.int64(UNKNOWN)) for each in (self.fate, self.ended))
        ended[:-1][(np.asarray(self.begun) == 0) & (ended[:-1] == NEVER)] = 0
        return fate, ended


@dataclass(slots=True)
class Tables:
    transactions: Transactions = field(default_factory=Transactions)
    steps: dict[str, list[Step]] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        self.steps.setdefault(step.f, []).append(step)

    def taken(self) -> list[Step]:
        """All steps since the last time."""
        steps = [step for mine in self.steps.values() for step in mine]
        self.steps.clear()
        return steps

    def of(self, *names: str) -> Iterator[Step]:
        for name in names:
            yield from self.steps.get(name, ())
