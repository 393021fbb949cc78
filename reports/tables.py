"""Tables of a run: steps of transactions, groups and the cluster, which belong to no single partition."""

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
    producer id and epoch of `init_producer` and `end_txn`. `member` is the instance id where there is one, `position`
    where the process had read to, `calm_ms` how long no fault had begun or ended, `open_ms` how long it was open.
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
    open_ms: int = 0
    text: str = ""

    @property
    def words(self) -> str:
        details = {
            "generation" if self.group else "epoch": self.epoch if self.epoch != UNKNOWN else "",
            "group": self.group,
            "member": self.member,
            "told by": self.node,
        }
        number = "" if self.number == UNKNOWN else f" {self.number}"
        what = f"{self.f.replace('_', ' ')} {self.subject}{number}{f' ({self.text})' if self.text else ''}"
        return ", ".join([what, *(f"{name} {value}" for name, value in details.items() if value != "")])


@dataclass(slots=True)
class Transactions:
    """Outcome of each transaction by number, and the event index of its EndTxn request (`NEVER`: none)."""

    names: list[str] = field(default_factory=list)
    fate: "array[int]" = field(default_factory=lambda: array("b"))
    ended: "array[int]" = field(default_factory=lambda: array("q"))
    begun: "array[int]" = field(default_factory=lambda: array("b"))
    _numbers: dict[int | str, int] = field(default_factory=dict, repr=False)

    def number(self, name: int | str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.fate)
            self.names.append(str(name))
            self.fate.append(UNKNOWN)
            self.ended.append(int(NEVER))
            self.begun.append(False)
        return number

    def name(self, number: int) -> str:
        return self.names[number]

    def columns(self) -> tuple[Ints, Ints]:
        """Return fate and end by number, with a last cell for rows without a transaction.

        The end is 0 if neither beginning nor end was recorded, since the end may then be missing in the history.
        """
        fate, ended = (np.append(np.asarray(column, np.int64), np.int64(UNKNOWN)) for column in (self.fate, self.ended))
        ended[:-1][(np.asarray(self.begun) == 0) & (ended[:-1] == NEVER)] = 0
        return fate, ended


@dataclass(slots=True)
class Tables:
    transactions: Transactions = field(default_factory=Transactions)
    steps: dict[str, list[Step]] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        self.steps.setdefault(step.f, []).append(step)

    def drain(self) -> list[Step]:
        """Return the steps added since the last call, and forget them."""
        steps = [step for mine in self.steps.values() for step in mine]
        self.steps.clear()
        return steps

    def of(self, *names: str) -> Iterator[Step]:
        for name in names:
            yield from self.steps.get(name, ())
