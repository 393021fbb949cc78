"""Events that belong to no single partition, as steps in the tables of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from highwater.reports.columns import NEVER, UNKNOWN, Began, Fate, Status
from highwater.reports.ingest.history import status_of
from highwater.reports.ingest.incarnations import Lives
from highwater.reports.tables import Step, Tables
from highwater.spec.formats.history import Event

BY_KEY: Final = {"commit", "committed", "send_offsets"}
LISTS: Final = {"sync", "delete_offsets"}
BEGINNINGS_OF_A_LIFE: Final = {"kill", "restart", "bounce"}


@dataclass(slots=True)
class Run:
    """Where a process stands: how often it was assigned, how the last time began, and as whose member."""

    number: int = 0
    began: Began | None = None
    group: str | None = None
    since: int = 0  # the last event before the assignment
    reset: bool = False  # it took `auto.offset.reset`


class Steps:
    handled: Final = BY_KEY | LISTS | {
        "group", "metadata", "create_topic", "delete_topic", "init_producer", "begin_txn", "end_txn",
    }  # fmt: skip

    def __init__(self, tables: Tables, number: Callable[[object], int], lives: Lives) -> None:
        self._tables, self._number, self._lives = tables, number, lives
        self._positions: dict[int | str, dict[str, int]] = {}  # where each process has read to
        self._asked: dict[tuple[str, str], int] = {}  # the largest offset that anybody tried to commit
        self._given: dict[tuple[str, str], int] = {}  # where a group's reading had come to
        self._given_at: dict[tuple[str, str], int] = {}  # and the event that told so
        self._unsure_polls: dict[str, int] = {}  # the last event at which a member may have been given more
        self._node_lives: dict[str, int] = {}
        self._incarnations: dict[str, int] = {}
        self._unsure: set[int] = set()  # transactions whose commit may have come through: a later refusal says nothing

    def _group(self, group: str) -> str:
        again = self._incarnations.get(group, 0)
        return f"{group}, made again {again}" if again else group

    # -- what readers did --------------------------------------------------------------------------

    def stands_at(self, process: int | str, key: str, position: int | None) -> None:
        """Reading begins there, somewhere if nobody tells."""
        mine = self._positions.setdefault(process, {})
        if position is None or position < 0:
            mine.pop(key, None)
        else:
            mine[key] = position

    def lose_place(self, process: int | str, group: str | None, index: int) -> None:
        self._positions.pop(process, None)
        if group is not None:
            self._unsure_polls[group] = index

    def was_given(self, process: int | str, group: str | None, key: str, position: int, index: int) -> None:
        self.stands_at(process, key, position)
        if group is not None:
            self._given[group, key] = max(self._given.get((group, key), 0), position)
            self._given_at[group, key] = index

    def resumes(
        self, invoke: Event, done: Event, group: str | None, key: str, records: list[tuple[int, int]], run: Run
    ) -> bool:
        """Notes where a member went on; true when the group may have come further than its reads tell."""
        if group is None or run.began is None or run.began is not Began.RESUMED:
            return False
        if not run.reset:
            self._tables.add(
            Step(
                "resume", run.since, done.index, self._number(invoke.process), Status.OK, key, records[0][0],
                group=self._group(group),
            ))  # fmt: skip
        if self._unsure_polls.get(group, UNKNOWN) > self._given_at.get((group, key), UNKNOWN):
            return True
        return self._asked.get((group, key), UNKNOWN) > self._given.get((group, key), 0)

    def membership(self, event: Event, since: int, calm_ms: int) -> None:
        if event.group is None and event.f == "assign":
            return
        member = event.instance_id or event.member_id or ""
        for key in event.value or [""]:
            self._tables.add(
                Step(
                    event.f, since, event.index, self._number(event.process), Status.OK, key,
                    epoch=_or_unknown(event.generation_id), group=event.group or "", member=member,
                    at_ms=event.time_ns // 1_000_000, calm_ms=calm_ms,
                )
            )  # fmt: skip

    def fault(self, event: Event) -> None:
        """What a broker told before it went is not held against what it tells when it is back."""
        if event.node is not None and event.f in BEGINNINGS_OF_A_LIFE:
            self._node_lives[event.node] = self._node_lives.get(event.node, 0) + 1

    # -- operations --------------------------------------------------------------------------------

    def begin(self, event: Event) -> None:
        transactions = self._tables.transactions
        if event.f == "begin_txn" and event.txn is not None:
            transactions.begun[transactions.number(event.txn)] = True
        elif event.f == "end_txn" and event.txn is not None and event.value == "commit":
            number = transactions.number(event.txn)
            transactions.ended[number] = min(transactions.ended[number], event.index)
        elif event.f == "delete_topic" and event.topic is not None:
            self._lives.delete(event.topic, event.index)
        elif event.f in {"commit", "send_offsets"} and isinstance(event.value, dict):
            for key, offset in event.value.items():
                where = (event.group or "", key)
                self._asked[where] = max(self._asked.get(where, UNKNOWN), offset)

    def complete(self, invoke: Event, done: Event | None, calm_ms: int) -> None:
        status = status_of(invoke, done)
        told = done or invoke
        if invoke.f == "end_txn":
            self._end(invoke, status)
            return
        if invoke.f in {"create_topic", "delete_topic"}:
            self._topic(invoke, told, status)
            return
        for subject, number, epoch in _subjects(invoke, told):
            if invoke.f == "metadata" and (self._lives.windows or told.topic_id is not None):
                subject = self._lives.rename(subject, told.topic_id, invoke.index, told.index)  # noqa: PLW2901
            self._tables.add(self._step(invoke, done, status, calm_ms, subject, number, epoch))
        if invoke.f == "delete_offsets" and not invoke.value and status is not Status.FAIL:
            self._incarnations[invoke.group or ""] = self._incarnations.get(invoke.group or "", 0) + 1

    def _step(
        self, invoke: Event, done: Event | None, status: Status, calm_ms: int, subject: str, number: int, epoch: int
    ) -> Step:
        told = done or invoke
        group = invoke.group or told.group or ""
        node = told.node or invoke.node or ""
        life = self._node_lives.get(node, 0)
        return Step(
            invoke.f,
            invoke.index,
            done.index if done is not None else int(NEVER),
            self._number(invoke.process),
            status,
            subject,
            number,
            epoch,
            group=self._group(group),
            member=told.instance_id or invoke.instance_id or told.member_id or invoke.member_id or "",
            node=f"{node}, life {life}" if life else node,
            txn=self._tables.transactions.number(invoke.txn) if invoke.txn is not None else UNKNOWN,
            position=self._positions.get(invoke.process, {}).get(subject, UNKNOWN),
            at_ms=told.time_ns // 1_000_000,
            calm_ms=calm_ms,
            text=str(told.value.get("state", "")) if invoke.f == "group" and isinstance(told.value, dict) else "",
        )

    def _end(self, invoke: Event, status: Status) -> None:
        if invoke.txn is None:
            return
        transactions = self._tables.transactions
        number = transactions.number(invoke.txn)
        if invoke.value != "commit":
            if status is Status.OK and transactions.fate[number] != Fate.COMMITTED:
                transactions.fate[number] = Fate.ABORTED
        elif status is Status.OK:
            transactions.fate[number] = Fate.COMMITTED
        elif status is Status.INFO:
            self._unsure.add(number)
        elif transactions.fate[number] != Fate.COMMITTED and number not in self._unsure:
            transactions.fate[number] = Fate.ABORTED

    def _topic(self, invoke: Event, told: Event, status: Status) -> None:
        if invoke.topic is None:
            return
        if invoke.f == "create_topic" and status is Status.OK:
            self._lives.create(invoke.topic, told.index)
            if told.topic_id is not None:
                self._lives.ids[told.topic_id] = len(self._lives.windows.get(invoke.topic, ()))
        elif invoke.f == "delete_topic" and status is Status.FAIL:
            self._lives.keep(invoke.topic)
        elif invoke.f == "delete_topic":  # what groups committed for it goes some time later
            self._tables.add(
                Step("delete_topic", invoke.index, int(NEVER), self._number(invoke.process), status, invoke.topic)
            )


def _or_unknown(value: int | None) -> int:
    return UNKNOWN if value is None else value


def _subjects(invoke: Event, told: Event) -> list[tuple[str, int, int]]:
    """(subject, number, epoch) of each step that an operation is."""
    value: Any = told.value if told.value is not None else invoke.value
    generation = _or_unknown(told.generation_id if told.generation_id is not None else invoke.generation_id)
    if invoke.f in BY_KEY:
        return [(key, offset, generation) for key, offset in (value or {}).items()]
    if invoke.f in LISTS:
        return [(key, UNKNOWN, generation) for key in value or [""]]
    if invoke.f == "metadata":
        return [(key, leader, epoch) for key, (leader, epoch) in (value or {}).items()]
    if invoke.f == "init_producer":
        return [(str(invoke.value or ""), _or_unknown(told.producer_id), _or_unknown(told.producer_epoch))]
    return [(invoke.group or "", UNKNOWN, generation)] if invoke.f == "group" else []
