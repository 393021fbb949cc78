"""Turn events that belong to no single partition into steps in the tables of a run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.reports.columns import NEVER, UNKNOWN, Began, Fate, Status
from highwater.reports.ingest.history import status_of
from highwater.reports.ingest.incarnations import TopicIncarnations
from highwater.reports.tables import Step, Tables
from highwater.spec.formats.history import Event

BY_KEY: Final = {"commit", "committed", "send_offsets"}
LISTS: Final = {"sync", "delete_offsets"}
NODE_RESTARTS: Final = {"kill", "restart", "bounce"}


@dataclass(slots=True)
class Run:
    """State of a reading process: count of its assignments and seeks, and how the last one began, in which group."""

    number: int = 0
    began: Began | None = None
    group: str | None = None
    since: int = 0  # the last event before the assignment, and its time
    at_ms: int = 0
    calm_ms: int = 0
    reset: bool = False  # the position came from `auto.offset.reset`
    held: dict[str, int] = field(default_factory=dict)  # the positions of the consumer when it was reset


class Steps:
    handled: Final = BY_KEY | LISTS | {
        "group", "metadata", "create_topic", "delete_topic", "init_producer", "begin_txn", "end_txn",
    }  # fmt: skip

    def __init__(self, tables: Tables, number: Callable[[int | str], int], incarnations: TopicIncarnations) -> None:
        self._tables, self._number, self._lives = tables, number, incarnations
        self._positions: dict[int | str, dict[str, int]] = {}  # where each process has read to
        self._commit_requests: dict[
            tuple[str, str], int
        ] = {}  # largest offset of any commit request, by (group, partition)
        self._reached: dict[
            tuple[str, str], int
        ] = {}  # largest position that a group has read to, by (group, partition)
        self._reached_at: dict[tuple[str, str], int] = {}  # event index of the poll that reached it
        self._uncertain_polls: dict[
            str, int
        ] = {}  # last event at which a poll of unknown outcome may have advanced a member, by group
        self._node_lives: dict[str, int] = {}
        self._incarnations: dict[str, int] = {}
        self._producers: dict[int, tuple[str, int, int]] = {}  # transactional id, producer id and epoch of transactions
        self._uncertain_commits: set[int] = (
            set()
        )  # transactions whose commit may have succeeded: a later error is no proof of an abort

    def _group(self, group: str) -> str:
        again = self._incarnations.get(group, 0)
        return f"{group}, made again {again}" if again else group

    # -- readers -------------------------------------------------------------------------------

    def set_position(self, process: int | str, key: str, position: int | None) -> None:
        """Note the next position of a process; None or a negative position if it is unknown."""
        mine = self._positions.setdefault(process, {})
        if position is None or position < 0:
            mine.pop(key, None)
        else:
            mine[key] = position

    def positions(self, process: int | str) -> dict[str, int]:
        """Return the next position of a process in each partition in which it is known."""
        return self._positions.get(process, {})

    def forget_positions(self, process: int | str) -> None:
        """Forget where a consumer that was killed had read to."""
        self._positions.pop(process, None)

    def lose_place(self, process: int | str, group: str | None, index: int) -> None:
        self._positions.pop(process, None)
        if group is not None:
            self._uncertain_polls[group] = index

    def advance_position(self, process: int | str, group: str | None, key: str, position: int, index: int) -> None:
        self.set_position(process, key, position)
        if group is not None:
            self._reached[group, key] = max(self._reached.get((group, key), 0), position)
            self._reached_at[group, key] = index

    def resumes(
        self, invoke: Event, done: Event, group: str | None, key: str, records: list[tuple[int, int]], run: Run
    ) -> bool:
        """Note where a member resumed; return whether the group may have read further than its known polls."""
        if group is None or run.began is None or run.began is not Began.RESUMED:
            return False
        step = Step(
            "reset_to" if run.reset else "resume", run.since, done.index, self._number(invoke.process), Status.OK, key,
            records[0][0], group=self._group(group), position=run.held.get(key, UNKNOWN), at_ms=run.at_ms,
            calm_ms=run.calm_ms, text=done.isolation or invoke.isolation or "",
        )  # fmt: skip
        self._tables.add(step)
        if self._uncertain_polls.get(group, UNKNOWN) > self._reached_at.get((group, key), UNKNOWN):
            return True
        return self._commit_requests.get((group, key), UNKNOWN) > self._reached.get((group, key), 0)

    def membership(self, event: Event, since: int, calm_ms: int) -> None:
        if event.group is None and event.generation_id is None and event.f == "assign":
            return
        member = event.instance_id or event.member_id or ""
        for key in event.value or [""]:
            self._tables.add(
                Step(
                    event.f, since, event.index, self._number(event.process), Status.OK, key,
                    _or_unknown(event.position) if event.f == "seek" else UNKNOWN,
                    epoch=_or_unknown(event.generation_id), group=event.group or "", member=member,
                    at_ms=event.time_ns // 1_000_000, calm_ms=calm_ms,
                )
            )  # fmt: skip

    def fault(self, event: Event) -> None:
        """Count restarts of a node: its metadata before a restart is not compared with its metadata after it."""
        if event.node is not None and event.f in NODE_RESTARTS:
            self._node_lives[event.node] = self._node_lives.get(event.node, 0) + 1

    # -- operations --------------------------------------------------------------------------------

    def begin(self, event: Event) -> None:
        transactions = self._tables.transactions
        if event.f == "begin_txn" and event.txn is not None:
            number = transactions.number(event.txn)
            transactions.begun[number] = True
            self._producers[number] = (
                str(event.value or ""), _or_unknown(event.producer_id), _or_unknown(event.producer_epoch)
            )  # fmt: skip
        elif event.f == "end_txn" and event.txn is not None and event.value == "commit":
            number = transactions.number(event.txn)
            transactions.ended[number] = min(transactions.ended[number], event.index)
        elif event.f == "delete_topic" and event.topic is not None:
            self._lives.delete(event.topic, event.index)
        elif event.f in {"commit", "send_offsets"} and isinstance(event.value, dict):
            for key, offset in event.value.items():
                where = (event.group or "", key)
                self._commit_requests[where] = max(self._commit_requests.get(where, UNKNOWN), offset)

    def complete(self, invoke: Event, done: Event | None, calm_ms: int) -> None:
        status = status_of(invoke, done)
        last = done or invoke
        if invoke.f == "end_txn":
            self._end(invoke, done, status, calm_ms)
            return
        if invoke.f in {"create_topic", "delete_topic"}:
            self._topic(invoke, last, status)
            return
        for subject, number, epoch in _subjects(invoke, last):
            if invoke.f == "metadata" and (self._lives.windows or last.topic_id is not None):
                subject = self._lives.rename(subject, last.topic_id, invoke.index, last.index)  # noqa: PLW2901
            self._tables.add(self._step(invoke, done, status, calm_ms, subject, number, epoch))
        if invoke.f == "delete_offsets" and not invoke.value and status is not Status.FAIL:
            self._incarnations[invoke.group or ""] = self._incarnations.get(invoke.group or "", 0) + 1

    def _step(
        self, invoke: Event, done: Event | None, status: Status, calm_ms: int, subject: str, number: int, epoch: int
    ) -> Step:
        last = done or invoke
        group = invoke.group or last.group or ""
        node = last.node or invoke.node or ""
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
            member=last.instance_id or invoke.instance_id or last.member_id or invoke.member_id or "",
            node=f"{node}, life {life}" if life else node,
            txn=self._tables.transactions.number(invoke.txn) if invoke.txn is not None else UNKNOWN,
            position=self._positions.get(invoke.process, {}).get(subject, UNKNOWN),
            at_ms=last.time_ns // 1_000_000,
            calm_ms=calm_ms,
            open_ms=last.time_ns // 1_000_000 - invoke.time_ns // 1_000_000,
            text=str(last.value.get("state", "")) if invoke.f == "group" and isinstance(last.value, dict) else "",
        )

    def _end(self, invoke: Event, done: Event | None, status: Status, calm_ms: int) -> None:
        if invoke.txn is None:
            return
        transactions = self._tables.transactions
        number = transactions.number(invoke.txn)
        name, producer, epoch = self._producers.get(number, ("", UNKNOWN, UNKNOWN))
        step = self._step(invoke, done, status, calm_ms, name, producer, epoch)
        self._tables.add(step._replace(text=str(invoke.value)))
        if invoke.value != "commit":
            if status is Status.OK and transactions.fate[number] != Fate.COMMITTED:
                transactions.fate[number] = Fate.ABORTED
        elif status is Status.OK:
            transactions.fate[number] = Fate.COMMITTED
        elif status is Status.INFO:
            self._uncertain_commits.add(number)
        elif transactions.fate[number] != Fate.COMMITTED and number not in self._uncertain_commits:
            transactions.fate[number] = Fate.ABORTED

    def _topic(self, invoke: Event, last: Event, status: Status) -> None:
        if invoke.topic is None:
            return
        if invoke.f == "create_topic":
            if status is Status.OK:
                self._lives.create(invoke.topic, last.index)
                if last.topic_id is not None:
                    self._lives.ids[last.topic_id] = len(self._lives.windows.get(invoke.topic, ()))
            return
        self._lives.complete(invoke.topic, status)
        if status is not Status.FAIL:  # the broker removes committed offsets of the topic some time later
            self._tables.add(
                Step("delete_topic", invoke.index, int(NEVER), self._number(invoke.process), status, invoke.topic)
            )


def _or_unknown(value: int | None) -> int:
    return UNKNOWN if value is None else value


def _subjects(invoke: Event, last: Event) -> list[tuple[str, int, int]]:
    """Return (subject, number, epoch) of each step of an operation; see `Step` for their meaning."""
    value: Any = last.value if last.value is not None else invoke.value
    generation = _or_unknown(last.generation_id if last.generation_id is not None else invoke.generation_id)
    if invoke.f in BY_KEY:
        return [(key, offset, generation) for key, offset in (value or {}).items()]
    if invoke.f in LISTS:
        return [(key, UNKNOWN, generation) for key in value or [""]]
    if invoke.f == "metadata":
        return [(key, leader, epoch) for key, (leader, epoch) in (value or {}).items()]
    if invoke.f == "init_producer":
        return [(str(invoke.value or ""), _or_unknown(last.producer_id), _or_unknown(last.producer_epoch))]
    return [(invoke.group or "", UNKNOWN, generation)] if invoke.f == "group" else []
