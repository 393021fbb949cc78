"""Random histories of a correct partition: a small simulation of one log, its leader, its writers and its readers.

Every operation has an invocation, one or more steps that take effect, and a completion. All of them are put on one
clock of event indices, and the steps are executed in that order. So a history of `simulate` is one that a correct
Apache Kafka with `acks=all` and without unclean elections can show, and no rule may find a violation in it.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.reports.columns import NEVER, TOMBSTONE, UNKNOWN, Began, Fate, Isolation, Kind, Status, producer_of
from highwater.reports.rules.findings import Promise

FEATURES: Final = (
    "deletions", "delete all", "delete replies", "retention", "log starts", "raw fetches", "polls", "rejected",
    "no offsets", "transactions", "tombstones", "compaction", "leader epochs", "elections", "producers", "gave up",
    "late records", "lag", "unknown outcomes", "list offsets", "dumps", "final phase", "groups", "times", "former",
    "followers", "isolation levels", "stable offsets", "one writer", "forgotten log starts", "whole batches",
    "pipelining",
)  # fmt: skip
FETCHES, POLLS, TXNS, RETENTION_MS = 100, 200, 3, 20
STEPS: Final = {
    "send": ("invoke", "append", "complete"),
    "fetch": ("invoke", "high watermark", "stable offset", "records", "complete"),
    "poll": ("invoke", "records", "complete"),
    "list": ("invoke", "high watermark", "complete"),
    "dump": ("invoke", "dump", "complete"),
    "delete": ("invoke", "delete", "complete"),
    "end": ("request", "marker"),
    "elect": ("elect",),
    "retain": ("retain",),
    "clean": ("clean",),
    "advance": ("advance",),
    "settle": ("settle",),
}


@dataclass(slots=True)
class Entry:
    """A record of the log; a transaction marker has no value."""

    value: int | None
    txn: int = UNKNOWN
    key: int = UNKNOWN
    at: int = 0
    offset: int = UNKNOWN
    was_truncated: bool = False
    was_cleaned: bool = False  # a tombstone that the cleaner has passed once


@dataclass(slots=True, eq=False)
class Plan:
    """An operation, or an action of the cluster without a row."""

    kind: str
    row: dict[str, Any] = field(default_factory=dict)
    entry: Entry | None = None
    again: Entry | None = None  # what the library of a client that gave up sends again
    begin: int = 0
    txn: int = UNKNOWN
    is_last: bool = False  # of the final phase


class Partition:
    """The log of a partition at its leader."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.end = self.high_watermark = self.committed_end = self.log_start = self.leader_epoch = 0
        self.epoch_start = 0  # where the log of the current leader ended when it was elected
        self.open: dict[int, int] = {}  # transaction -> its first offset
        self.aborted: set[int] = set()

    @property
    def stable(self) -> int:
        return min([self.high_watermark, *self.open.values()])

    def append(self, entry: Entry) -> None:
        entry.offset = self.end
        self.end += 1
        self.log.append(entry)
        if entry.txn != UNKNOWN and entry.value is not None:
            self.open.setdefault(entry.txn, entry.offset)

    def records(self, begin: int, end: int, *, committed: bool) -> list[tuple[int, int]]:
        return [
            (entry.offset, entry.value)
            for entry in self.log
            if begin <= entry.offset < end and entry.value is not None
            if not committed or entry.txn not in self.aborted
        ]

    def advance(self, to: int) -> None:
        self.high_watermark = max(self.high_watermark, to)
        self.committed_end = max(self.committed_end, to)

    def clean(self) -> None:
        """Remove stable records that a later one of their key replaces, aborted ones, and known tombstones."""
        stable = [entry for entry in self.log if entry.offset < self.stable and entry.value is not None]
        last = {entry.key: entry.offset for entry in stable if entry.txn not in self.aborted}
        for entry in stable:
            if entry.txn in self.aborted or last[entry.key] != entry.offset or entry.was_cleaned:
                self.log.remove(entry)
            entry.was_cleaned = entry.value == TOMBSTONE

    def forget_log_start(self, chance: random.Random) -> None:
        """Return to an older log start, as a new leader that was killed before it had written the last one."""
        self.log_start = chance.randint(0, self.log_start)

    def elect(self, chance: random.Random, *, lags: bool) -> None:
        """Elect another in-sync replica: it has what is below the high watermark, and may know an older one."""
        self.leader_epoch += 1
        kept = chance.randint(self.committed_end, self.end) if lags else self.end
        for entry in self.log:
            entry.was_truncated = entry.offset >= kept
        self.log = [entry for entry in self.log if entry.offset < kept]
        self.end = self.epoch_start = kept
        first: dict[int, int] = {}
        for entry in self.log:
            if entry.txn in self.open and entry.value is not None:
                first.setdefault(entry.txn, entry.offset)
        self.open = first
        if lags:
            self.high_watermark = max(self.log_start, self.high_watermark - chance.randint(0, 2))


class Simulation:
    """Executes the plans of one history, step by step."""

    def __init__(self, chance: random.Random, features: Collection[str]) -> None:
        self.chance, self.features = chance, features
        self.partition = Partition()
        self.fates: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.closing: set[int] = set()
        self.positions: dict[int, int] = {}
        self.runs: dict[int, int] = {}
        self.group_position = 0
        self.group_reader = UNKNOWN
        self.epochs: dict[int, list[int]] = {}  # writer -> its producer epoch and next sequence
        self.waiting: dict[int, list[Plan]] = {}  # writer -> its sends that are not in the log, by sequence
        self.resent: dict[int, list[Entry]] = {}  # writer -> what its library sends again under a new producer epoch
        self.last_fault = 0
        self.now = 0

    def has(self, feature: str) -> bool:
        return feature in self.features

    def maybe(self, feature: str, probability: float = 0.6) -> bool:
        return feature in self.features and self.chance.random() < probability

    def execute(self, plan: Plan, step: str, now: int) -> None:
        self.now = now
        getattr(self, "_" + step.replace(" ", "_"))(plan)
        if not self.has("lag"):
            self.partition.advance(self.partition.end)

    # -- the cluster -------------------------------------------------------------------------------

    def _advance(self, plan: Plan) -> None:
        self.partition.advance(self.chance.randint(self.partition.high_watermark, self.partition.end))

    def _settle(self, plan: Plan) -> None:
        self.partition.advance(self.partition.end)

    def _elect(self, plan: Plan) -> None:
        self.partition.elect(self.chance, lags=self.has("lag"))
        if self.maybe("forgotten log starts", 0.9):
            self.partition.forget_log_start(self.chance)
        self.last_fault = self.now

    def _retain(self, plan: Plan) -> None:
        """Advance the log start past old records."""
        partition = self.partition
        limit = self.chance.randint(partition.log_start, partition.high_watermark)
        young = [entry.offset for entry in partition.log if self.now - entry.at <= RETENTION_MS]
        partition.log_start = max(partition.log_start, min([limit, *young]))

    def _clean(self, plan: Plan) -> None:
        self.partition.clean()

    def _request(self, plan: Plan) -> None:
        self.closing.add(plan.txn)
        self.ended[plan.txn] = self.now

    def _marker(self, plan: Plan) -> None:
        fate = self.chance.choice([Fate.COMMITTED, Fate.COMMITTED, Fate.ABORTED])
        self.fates[plan.txn] = UNKNOWN if self.maybe("unknown outcomes", 0.3) else int(fate)
        if fate is Fate.ABORTED:
            self.partition.aborted.add(plan.txn)
        if plan.txn in self.partition.open:
            del self.partition.open[plan.txn]
            self.partition.append(Entry(None))
            self.partition.advance(self.partition.end)

    # -- operations --------------------------------------------------------------------------------

    def _invoke(self, plan: Plan) -> None:
        plan.row |= {"invoked": self.now, "status": Status.OK}
        if plan.kind == "send":
            txn = plan.row.get("txn", UNKNOWN)
            if txn != UNKNOWN and txn in self.closing:
                plan.row["txn"] = UNKNOWN
            plan.entry = Entry(plan.row["value"], plan.row.get("txn", UNKNOWN), plan.row.get("key", UNKNOWN), self.now)
            if self.has("times"):
                plan.row["timestamp_ms"] = self.now
            writer = self.writer(plan)
            epochs = self.epochs.setdefault(writer, [0, 0])
            plan.row |= {"producer": producer_of(writer, epochs[0]), "sequence": epochs[1]}
            epochs[1] += 1
            self.waiting.setdefault(writer, []).append(plan)
        elif plan.kind in {"fetch", "poll"}:
            self._begin_read(plan)

    def _begin_read(self, plan: Plan) -> None:
        partition, row = self.partition, plan.row
        if plan.kind == "fetch":
            plan.begin = row["position"] = self.chance.randint(0, partition.high_watermark)
            if plan.is_last or self.chance.random() < 0.4:
                plan.begin = row["position"] = 0 if self.chance.random() < 0.2 else partition.log_start
            return
        process = row["process"]
        if row.get("group", UNKNOWN) != UNKNOWN:
            if self.group_reader != process:
                row["began"] = Began.RESUMED
                self.runs[process] = self.now
                self.positions[process] = self.group_position
            self.group_reader = process
        elif process not in self.positions or self.chance.random() < 0.2:
            self.runs[process] = self.now  # an assignment or a seek
            self.positions[process] = self.chance.choice([0, self.chance.randint(0, partition.high_watermark)])
            if self.chance.random() < 0.5:
                row["position"] = self.positions[process]
        row["run"] = self.runs[process]
        plan.begin = self.positions[process]

    def writer(self, plan: Plan) -> int:
        """Return the producer of a send; one that pipelines uses several processes."""
        return 0 if self.has("pipelining") else int(plan.row["process"])

    def _append(self, plan: Plan) -> None:
        """Append a send after all earlier ones of its producer, and what its library sends again."""
        waiting = self.waiting[self.writer(plan)]
        while plan in waiting:
            self._append_next(waiting.pop(0))
        if self.chance.random() < 0.5:
            self._append_resent(self.writer(plan))

    def _append_resent(self, writer: int) -> None:
        for entry in self.resent.pop(writer, []):
            self.partition.append(entry)

    def _append_next(self, plan: Plan) -> None:
        assert plan.entry is not None
        if plan.row.get("txn", UNKNOWN) in self.closing or self.maybe("rejected", 0.3):
            plan.row["status"] = Status.FAIL
            plan.entry = None
            return
        self.partition.append(plan.entry)
        plan.row["leader_epoch"] = self.partition.leader_epoch
        if self.maybe("gave up", 0.4):
            plan.row["gave_up"] = 1
            if plan.entry.txn == UNKNOWN and plan.entry.value != TOMBSTONE and self.chance.random() < 0.5:
                writer = self.writer(plan)
                plan.again = Entry(plan.entry.value, UNKNOWN, plan.entry.key, self.now)
                self.resent.setdefault(writer, []).append(plan.again)
                if self.chance.random() < 0.5:
                    self._append_resent(writer)
                self.epochs[writer] = [self.epochs[writer][0] + 1, 0]

    def _high_watermark(self, plan: Plan) -> None:
        plan.row["high_watermark"] = self.partition.high_watermark
        if plan.kind == "fetch" and not plan.is_last and self.maybe("followers", 0.4):
            lagging = self.chance.randint(min(plan.begin, self.partition.high_watermark), self.partition.high_watermark)
            plan.row |= {"node": 1, "follower": True, "high_watermark": lagging}
        plan.row["leader_epoch"] = self.partition.leader_epoch
        if plan.kind == "list" and self.partition.high_watermark < self.partition.epoch_start:  # KIP-207
            plan.row |= {"status": Status.FAIL, "high_watermark": UNKNOWN}

    def _stable_offset(self, plan: Plan) -> None:
        stable = self.partition.stable
        plan.row["last_stable_offset"] = min(stable, plan.row["high_watermark"]) if "follower" in plan.row else stable

    def _records(self, plan: Plan) -> None:
        partition, row = self.partition, plan.row
        if plan.kind == "fetch" and row["leader_epoch"] != partition.leader_epoch:
            row |= {"status": Status.FAIL, "high_watermark": UNKNOWN, "last_stable_offset": UNKNOWN}
            return
        committed = row["committed"]
        end = partition.stable if committed else partition.high_watermark
        if plan.kind == "fetch" and ("follower" in row or not self.has("late records")):
            end = min(end, row["last_stable_offset"] if committed else row["high_watermark"])
        log_start = partition.log_start
        if "follower" in row and self.maybe("forgotten log starts"):  # it learns the log start of the leader later
            log_start = self.chance.randint(0, log_start)
        row["log_start_offset"] = log_start
        if plan.begin < log_start and plan.kind == "fetch":
            row["status"] = Status.FAIL
            return
        begin = max(plan.begin, log_start)
        if plan.kind == "fetch" and not self.has("compaction") and self.maybe("whole batches"):
            begin = max(0, begin - self.chance.randint(0, 2))  # the first batch may begin below the position
        records = partition.records(begin, end, committed=committed)
        limit = len(records) if plan.is_last else self.chance.randint(1, max(1, len(records)))
        row["records"] = records[:limit]

    def _dump(self, plan: Plan) -> None:
        partition = self.partition
        plan.row |= {
            "position": partition.log_start,
            "high_watermark": self.chance.randint(partition.log_start, partition.high_watermark),
            "records": partition.records(partition.log_start, partition.end, committed=False),
        }

    def _delete(self, plan: Plan) -> None:
        partition = self.partition
        to = self.chance.randint(0, partition.high_watermark)
        plan.row["offset"] = to
        if self.maybe("delete all", 0.7):
            plan.row["offset"], to = UNKNOWN, partition.high_watermark
        partition.log_start = max(partition.log_start, to)
        plan.row["log_start_offset"] = partition.log_start

    def _complete(self, plan: Plan) -> None:
        row = plan.row
        row["returned"] = self.now
        row["at_ms"] = self.now
        row["open_ms"] = self.now - row["invoked"]
        row["calm_ms"] = self.now - self.last_fault
        if plan.kind == "send":
            self._complete_send(plan)
        elif plan.kind == "poll" and row.get("records"):
            self.positions[row["process"]] = row["records"][-1][0] + 1
            if row.get("group", UNKNOWN) != UNKNOWN:
                self.group_position = self.positions[row["process"]]
        if plan.kind == "delete" and self.maybe("unknown outcomes", 0.4):
            row |= {"status": Status.INFO, "log_start_offset": UNKNOWN}

    def _complete_send(self, plan: Plan) -> None:
        row, entry = plan.row, plan.entry
        if entry is None:
            return
        deposed = self.partition.leader_epoch != row["leader_epoch"]
        is_late = plan.again is not None and plan.again.offset != entry.offset + 1  # this client expects no reply
        if (plan.again or entry).was_truncated or is_late or deposed or self.maybe("unknown outcomes", 0.4):
            row["status"] = Status.INFO
            if self.chance.random() < 0.3:
                row["returned"] = int(NEVER)
            return
        entry = plan.again or entry  # the client has the reply to what was sent last
        self.partition.advance(entry.offset + 1)
        row["offset"] = UNKNOWN if self.maybe("no offsets") else entry.offset


# --------------------------------------------------------------------------------------------------
# Plans


def simulate(
    chance: random.Random, features: Collection[str], script: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], Promise]:
    """Return the rows of a correct history with at most about twelve operations, in the order of completion.

    The kinds of a script happen in its order, and few others between them.
    """
    simulation = Simulation(chance, features)
    kinds = _kinds(chance, simulation)
    others = chance.sample(kinds, len(kinds) if not script else min(len(kinds), chance.randint(0, 3)))
    plans = [Plan(kind) for kind in script]
    for kind in others:
        plans.insert(chance.randint(0, len(plans)), Plan(kind))
    last = [Plan(kind, is_last=True) for kind in _last_kinds(chance, simulation)]
    moments = _moments(chance, plans)
    end = max((time for time, _, _ in moments), default=0.0)
    if last:
        moments.append((end + 0.5, Plan("settle"), "settle"))
    for number, plan in enumerate(last, 1):
        moments += _spread(chance, plan, end + 20 * number, 2.0)
    _assign_processes(chance, simulation, moments)
    for now, (_, plan, step) in enumerate(sorted(moments, key=lambda moment: moment[0])):
        simulation.execute(plan, step, now)
    rows = [_stated(simulation, plan) for plan in plans + last if plan.row]
    rows = [row for row in rows if not _is_empty_poll(row, simulation)]
    return sorted(rows, key=lambda row: (row["returned"], row["invoked"])), _promise(simulation)


def _kinds(chance: random.Random, simulation: Simulation) -> list[str]:
    """Return what happens, without an order."""
    choices = ["send"] * 3
    for feature, kind, weight in (
        ("raw fetches", "fetch", 3), ("polls", "poll", 3), ("groups", "poll", 2), ("list offsets", "list", 2),
        ("dumps", "dump", 2), ("deletions", "delete", 2), ("delete all", "delete", 2), ("elections", "elect", 1),
        ("retention", "retain", 2), ("compaction", "clean", 2), ("lag", "advance", 2), ("followers", "fetch", 2),
        ("late records", "fetch", 2), ("stable offsets", "fetch", 1),
    ):  # fmt: skip
        choices += [kind] * (weight if simulation.has(feature) else 0)
    if not {"fetch", "poll"} & set(choices):
        choices += ["fetch", "poll"]
    kinds = ["send", *(chance.choice(choices) for _ in range(chance.randint(2, 10)))]
    kinds += ["poll"] * 3 if simulation.has("groups") else []
    return kinds + (["end"] * chance.randint(0, TXNS) if simulation.has("transactions") else [])


def _last_kinds(chance: random.Random, simulation: Simulation) -> list[str]:
    if not simulation.has("final phase"):
        return []
    return [chance.choice(["fetch", "poll", "list"]) for _ in range(chance.randint(1, 2))]


def _spread(chance: random.Random, plan: Plan, start: float, length: float) -> list[tuple[float, Plan, str]]:
    steps = STEPS[plan.kind]
    times = [start, *sorted(start + chance.random() * length for _ in steps[1:])]
    return [(time, plan, step) for time, step in zip(times, steps, strict=True)]


def _moments(chance: random.Random, plans: list[Plan]) -> list[tuple[float, Plan, str]]:
    """Return (time, plan, step) for each step; operations overlap in some histories."""
    length = chance.choice([0.5, 3.0, 10.0])
    moments = []
    for number, plan in enumerate(plans):
        moments += _spread(chance, plan, number + chance.random() / 10, length if plan.kind != "send" else length / 2)
    ends = [plan for plan in plans if plan.kind == "end"]
    for txn, plan in enumerate(ends):
        plan.txn = txn
    return moments


def _assign_processes(chance: random.Random, simulation: Simulation, moments: list[tuple[float, Plan, str]]) -> None:
    """Give each operation a process that is not busy, and its other cells."""
    spans: dict[Plan, list[float]] = {}
    for time, plan, _ in sorted(moments, key=lambda moment: moment[0]):
        spans.setdefault(plan, []).append(time)
    busy: dict[int, float] = {}
    group_busy = -1.0
    for number, (plan, times) in enumerate(spans.items()):
        if plan.kind not in {"send", "fetch", "poll", "list", "dump", "delete"}:
            continue
        base = {"fetch": FETCHES, "poll": POLLS}.get(plan.kind, 0)
        in_group = plan.kind == "poll" and times[0] > group_busy and simulation.maybe("groups", 0.9)
        if in_group:
            group_busy, base = times[-1], chance.choice([POLLS + 50, POLLS + 60])
        process = next(base + p for p in range(50) if busy.get(base + p, -1.0) < times[0])
        busy[process] = times[-1]
        plan.row = _cells(chance, simulation, plan, number) | {"process": process, "quiet": int(plan.is_last)}
        if in_group:
            plan.row["group"] = 0


def _cells(chance: random.Random, simulation: Simulation, plan: Plan, number: int) -> dict[str, Any]:
    kinds = {"send": Kind.SEND, "list": Kind.LIST_OFFSETS, "dump": Kind.DUMP, "delete": Kind.DELETE}
    row: dict[str, Any] = {"kind": kinds.get(plan.kind, Kind.READ), "txn": UNKNOWN, "run": 0}
    if plan.kind == "send":
        row["value"] = TOMBSTONE if simulation.maybe("tombstones", 0.4) else 10 + number
        row["key"] = chance.randint(0, 1) if simulation.has("compaction") or simulation.has("tombstones") else UNKNOWN
        row["txn"] = chance.randrange(TXNS) if simulation.maybe("transactions") else UNKNOWN
    if plan.kind in {"fetch", "poll"}:
        level = chance.choice([UNKNOWN, *Isolation]) if simulation.has("isolation levels") else UNKNOWN
        row |= {"isolation": int(level), "committed": level != Isolation.READ_UNCOMMITTED}
    if plan.kind == "dump":
        row["node"] = chance.randint(0, 2)
    return row


OPTIONAL_CELLS: Final = {
    "leader_epoch": "leader epochs", "last_stable_offset": "stable offsets", "log_start_offset": "log starts",
    "producer": "producers", "sequence": "producers", "at_ms": "times", "calm_ms": "times", "open_ms": "times",
}  # fmt: skip


def _stated(simulation: Simulation, plan: Plan) -> dict[str, Any]:
    """Return the row with what the history states."""
    row = {name: cell for name, cell in plan.row.items() if name not in {"committed", "follower"}}
    for cell, feature in OPTIONAL_CELLS.items():
        wanted = "delete replies" if plan.kind == "delete" and cell == "log_start_offset" else feature
        if not simulation.maybe(wanted, 0.8) or (cell == "leader_epoch" and "follower" in plan.row):
            row[cell] = UNKNOWN
    if plan.kind in {"fetch", "list"} and simulation.chance.random() < 0.1:
        row["high_watermark"] = UNKNOWN
    txn = row["txn"]
    row["fate"] = simulation.fates.get(txn, UNKNOWN)
    row["ended"] = simulation.ended.get(txn, int(NEVER)) if txn != UNKNOWN else UNKNOWN
    if plan.kind == "poll":
        row |= dict.fromkeys(("leader_epoch", "log_start_offset", "at_ms", "calm_ms", "open_ms"), UNKNOWN)
        if plan.is_last and not row["records"]:
            row["position"] = max(plan.begin, simulation.partition.log_start)
    return row


def _is_empty_poll(row: dict[str, Any], simulation: Simulation) -> bool:
    """Return whether ingest drops this row: an empty poll, but for one that ends the final phase."""
    if row["process"] < POLLS or row["records"]:
        return False
    return not row["quiet"] or bool(simulation.partition.open)


def _promise(simulation: Simulation) -> Promise:
    times = simulation.has("times")
    return Promise(
        retention=simulation.has("retention"),
        compaction=simulation.has("compaction"),
        retention_ms=RETENTION_MS if times and simulation.has("retention") else -1,
        transaction_timeout_ms=1000 if times else -1,
    )
