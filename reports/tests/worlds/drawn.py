"""Draw small histories of a right cluster: clients are generators, and a random scheduler interleaves their steps.

A step changes the cluster at one moment between the invocation and the completion of an operation, or after it, if the
outcome is unknown. Everything depends on the seed only.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from highwater.reports.tests.worlds.operations import History, Key

Steps = Iterator[None]
ACKED: Final = ("ok",) * 12
SEND_OUTCOMES: Final = (*ACKED, "no offset", "no offset", "written", "written", "not written", "late", "fail")
END_OUTCOMES: Final = (*ACKED, "written", "written", "not written", "not written", "fail", "never")
WISHES: Final = ("commit", "commit", "commit", "abort")
ISOLATIONS: Final = ("read_uncommitted", "read_committed")


def drawn_history(seed: int) -> History:
    """Return the history of a right cluster that belongs to this seed."""
    return Cluster(random.Random(seed)).run()


class Partition:
    """A log: records `(value, txn)`, and markers, whose value is None. `high` holds each leader's high watermark."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, str | None]] = []
        self.high: list[int] = [0]
        self.ends: list[int] = []
        """Where the logs of former leaders end."""

    @property
    def epoch(self) -> int:
        return len(self.high) - 1

    def elect(self, rng: random.Random) -> None:
        self.ends.append(len(self.log))
        self.high.append(rng.randint(0, len(self.log)))

    def stable(self, high: int) -> int:
        """Return the last stable offset of a leader with this high watermark."""
        decided = {txn for value, txn in self.log[:high] if value is None}
        open_at = [offset for offset, (_, txn) in enumerate(self.log[:high]) if txn is not None and txn not in decided]
        return min(open_at, default=high)


class Cluster:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.idempotent = rng.random() < 0.8
        self.isolation = rng.choice(ISOLATIONS)
        stated = {"acks": "all", "idempotence": self.idempotent, "isolation": self.isolation}
        header = stated | dict.fromkeys(("unclean_election", "retention", "compaction", "offset_expiry"), False)
        header["complete"] = True
        self.events: History = [{"process": "nemesis", "type": "info", "f": "header", "value": header}]
        self.partitions = {f"t-{number}": Partition() for number in range(rng.choice((1, 1, 2)))}
        self.outcomes: dict[str, str] = {}
        self.values = 0
        self.processes = 0
        self.generation = 0
        self.owners: dict[int, list[Key]] = {}
        """The keys of each member of the current generation."""
        self.commits: dict[Key, list[tuple[int, str | None]]] = {key: [] for key in self.partitions}
        self.running: list[Steps] = []
        self.states_epochs = rng.random() < 0.6

    def run(self) -> History:
        scripts: list[Callable[[], Steps]] = [
            self.producer, self.producer, self.transactions, self.fetcher, self.consumer, self.members, self.processor,
            self.elections, self.observer,
        ]  # fmt: skip
        self.running = [self.producer(), *(script() for script in self.rng.choices(scripts, k=self.rng.randint(1, 3)))]
        while self.running:
            script = self.rng.choice(self.running)
            if next(script, True):
                self.running.remove(script)
        if self.rng.random() < 0.8:
            self._final_reads()
        return self.events

    def _final_reads(self) -> None:
        self.event("nemesis", "info", "phase", value="final")
        for key in self.partitions:
            process = self.new_process()
            for _ in self.fetch(process, key, position=0, whole=True, isolation=self.rng.choice(ISOLATIONS)):
                pass

    def event(self, process: int | str, type_: str, f: str, key: Key | None = None, **fields: Any) -> None:
        place = {"topic": "t", "partition": int(key.rpartition("-")[2])} if key else {}
        fields = {name: value for name, value in fields.items() if value is not None}
        self.events.append({"process": process, "type": type_, "f": f, **place, **fields})

    def new_process(self) -> int:
        self.processes += 1
        return self.processes - 1

    def epoch_of(self, key: Key) -> int | None:
        return self.partitions[key].epoch if self.states_epochs else None

    def producer(self) -> Steps:
        process = self.new_process()
        known = self.idempotent and self.rng.random() < 0.4
        for sequence in range(self.rng.randint(1, 3)):
            key = self.rng.choice(list(self.partitions))
            ids = {"producer_id": 100 + process, "producer_epoch": 0, "sequence": sequence} if known else {}
            if (yield from self.send(process, key, None, **ids)) == "late":
                return

    def send(self, process: int, key: Key, txn: str | None = None, **ids: Any) -> Any:
        """Send a record, and return its outcome; a late record is written after the operation has ended."""
        partition, outcome = self.partitions[key], self.rng.choice(SEND_OUTCOMES)
        if outcome == "late" and txn is not None:
            outcome = "fail"
        self.values += self.rng.random() < 0.97
        value = self.values
        self.event(process, "invoke", "send", key, value=value, txn=txn, **ids)
        yield
        offset, epoch = len(partition.log), self.epoch_of(key)
        if outcome not in {"not written", "late", "fail"}:
            partition.log.append((value, txn))
            yield
        fields = {"value": value, "txn": txn, **ids}
        if outcome in {"ok", "no offset"}:
            same = epoch == self.epoch_of(key)
            partition.high[-1] = max(partition.high[-1], offset + 1)
            acked = {"offset": offset if outcome == "ok" else -1, "leader_epoch": epoch if same else None}
            self.event(process, "ok", "send", key, **fields, **acked)
            if not self.idempotent and txn is None and self.rng.random() < 0.1:
                yield
                partition.log.append((value, None))
        elif outcome == "fail":
            self.event(process, "fail", "send", key, **fields)
        else:
            self.event(process, "info", "send", key, **fields, error="timed out")
        if outcome == "late":
            yield
            yield
            partition.log.append((value, None))
        return outcome

    def transactions(self) -> Steps:
        """One or two transactions of one transactional id."""
        process = self.new_process()
        for number in range(self.rng.choice((1, 1, 2))):
            txn = f"x{process}{number}"
            self._begin(process, txn, number)
            touched = []
            for _ in range(self.rng.randint(1, 2)):
                touched.append(self.rng.choice(list(self.partitions)))
                yield from self.send(process, touched[-1], txn)
            outcome = yield from self.end(process, txn, set(touched), self.rng.choice(WISHES))
            if outcome != "ok":
                return
            while any(not self._marked(key, txn) for key in touched):
                yield

    def _begin(self, process: int, txn: str, epoch: int) -> None:
        ids: dict[str, Any] = {"value": f"tid{process}", "producer_id": process, "producer_epoch": epoch}
        self.event(process, "info", "begin_txn", txn=txn, **ids)

    def end(self, process: int, txn: str, touched: set[Key], wish: str) -> Any:
        """End a transaction; its markers follow at any time."""
        outcome = self.rng.choice(END_OUTCOMES)
        if outcome != "never":
            self.event(process, "invoke", "end_txn", txn=txn, value=wish)
            yield
        decided = wish if outcome in {"ok", "written"} else "abort"
        if outcome in {"ok", "written"} or self.rng.random() < 0.5:
            self.outcomes[txn] = decided
            self.running.extend(self.marker(txn, key, decided) for key in sorted(touched))
        if outcome != "never":
            yield
            status = outcome if outcome in {"ok", "fail"} else "info"
            error = "timed out" if status == "info" else None
            self.event(process, status, "end_txn", txn=txn, value=wish, error=error)
        return outcome

    def marker(self, txn: str, key: Key, outcome: str) -> Steps:
        for _ in range(self.rng.choice((0, 0, 1, 3))):
            yield
        self.partitions[key].log.append((None, txn))

    def _marked(self, key: Key, txn: str) -> bool:
        return (None, txn) in self.partitions[key].log

    def _visible(self, key: Key, offset: int, isolation: str) -> bool:
        value, txn = self.partitions[key].log[offset]
        stable = txn is None or self.outcomes.get(txn) == "commit"
        return value is not None and (stable or isolation == "read_uncommitted")

    def _records(self, key: Key, offsets: range, isolation: str) -> list[list[Any]]:
        log = self.partitions[key].log
        return [[offset, log[offset][0]] for offset in offsets if self._visible(key, offset, isolation)]

    def fetcher(self) -> Steps:
        process = self.new_process()
        for _ in range(self.rng.randint(1, 2)):
            key, isolation = self.rng.choice(list(self.partitions)), self.rng.choice((None, *ISOLATIONS))
            position = self.rng.choice((0, 0, self.rng.randint(0, len(self.partitions[key].log))))
            yield from self.fetch(process, key, position, isolation=isolation)

    def fetch(self, process: int, key: Key, position: int, *, isolation: str | None, whole: bool = False) -> Steps:
        partition = self.partitions[key]
        epoch = partition.epoch - (partition.epoch > 0 and not whole and self.rng.random() < 0.2)
        stated = epoch if self.states_epochs else None
        self.event(process, "invoke", "fetch", key, position=position, isolation=isolation, leader_epoch=stated)
        yield
        end = len(partition.log)
        if epoch == partition.epoch:
            partition.high[epoch] = end if whole else self.rng.randint(partition.high[epoch], end)
        high, read_as = partition.high[epoch], isolation or self.isolation
        stable = partition.stable(high)
        limit = stable if read_as == "read_committed" else high
        if not whole and self.rng.random() < 0.3:
            limit = self.rng.randint(min(position, limit), limit)
        records = self._records(key, range(position, limit), read_as)
        if records and position and self.rng.random() < 0.2:
            records = self._records(key, range(self.rng.randint(0, position), limit), read_as)
        yield
        ends = {"high_watermark": high, "last_stable_offset": stable if self.rng.random() < 0.7 else None}
        common = {"isolation": isolation, "leader_epoch": stated}
        self.event(process, "ok", "fetch", key, position=position, value=records, **ends, **common)

    def consumer(self) -> Steps:
        process, isolation = self.new_process(), self.rng.choice((None, *ISOLATIONS))
        keys = self.rng.sample(list(self.partitions), self.rng.randint(1, len(self.partitions)))
        self.event(process, "ok", "assign", value=keys, position=self.rng.choice((0, 0, 0, None)))
        positions = dict.fromkeys(keys, 0)
        for _ in range(self.rng.randint(1, 3)):
            yield from self.poll(process, positions, isolation)

    def poll(self, process: int, positions: dict[Key, int], isolation: str | None, **fields: Any) -> Steps:
        """Poll, and advance the positions."""
        self.event(process, "invoke", "poll", isolation=isolation, **fields)
        yield
        read_as, value = isolation or self.isolation, {}
        for key, position in positions.items():
            partition = self.partitions[key]
            end = partition.stable(len(partition.log)) if read_as == "read_committed" else len(partition.log)
            limit = self.rng.choice((end, end, end, self.rng.randint(min(position, end), end), position))
            partition.high[-1] = len(partition.log)
            if records := self._records(key, range(position, limit), read_as):
                value[key], positions[key] = records, records[-1][0] + 1
        yield
        self.event(process, "ok", "poll", value=value, isolation=isolation, **fields)

    def elections(self) -> Steps:
        for _ in range(self.rng.randint(1, 2)):
            yield
            self.event("nemesis", "info", "kill", node="1")
            for partition in self.partitions.values():
                partition.elect(self.rng)
            yield
            self.event("nemesis", "info", "restart", node="1")

    def observer(self) -> Steps:
        """Request the end of a partition."""
        process, key = self.new_process(), self.rng.choice(list(self.partitions))
        partition = self.partitions[key]
        isolation = "read_uncommitted"
        self.event(process, "invoke", "list_offsets", key, isolation=isolation)
        yield
        # A new leader does not answer before it knows the end of the former epoch (KIP-207).
        known = max([partition.high[-1], *partition.ends[-1:]])
        partition.high[-1] = high = self.rng.randint(known, len(partition.log))
        epoch = self.epoch_of(key)
        yield
        self.event(process, "ok", "list_offsets", key, high_watermark=high, leader_epoch=epoch, isolation=isolation)

    def members(self) -> Steps:
        """One or two members, one after the other, read and commit; then the committed offset is fetched."""
        for _ in range(self.rng.randint(1, 2)):
            process, keys = self.new_process(), list(self.partitions)
            generation = self._join(process, keys)
            positions: dict[Key, int] = {}
            for _ in range(self.rng.randint(1, 2)):
                yield
                self._resume(positions, keys, self.isolation)
                before = dict(positions)
                yield from self.poll(process, positions, None, group="g")
                key = self.rng.choice(keys)
                if positions.get(key) != before.get(key):
                    yield from self._commit(process, generation, key, positions[key])
        if self.rng.random() < 0.7:
            yield from self._committed(self.new_process(), self.rng.choice(list(self.partitions)))

    def _join(self, process: int, keys: list[Key]) -> int:
        self.generation += 1
        self.event(process, "ok", "assign", value=keys, **self._member(process, self.generation))
        return self.generation

    def _member(self, process: int, generation: int) -> dict[str, Any]:
        return {"generation_id": generation, "member_id": f"m{process}", "group": "g"}

    def _resume(self, positions: dict[Key, int], keys: list[Key], isolation: str) -> None:
        """Set the positions that are missing, unless a transaction has yet to decide the committed offset."""
        for key in keys:
            if key not in positions and not (isolation == "read_committed" and self._pending(key)):
                positions[key] = max(self._committed_offset(key), 0)

    def _pending(self, key: Key) -> bool:
        return any(txn is not None and txn not in self.outcomes for _, txn in self.commits[key])

    def _committed_offset(self, key: Key) -> int:
        visible = [offset for offset, txn in self.commits[key] if txn is None or self.outcomes.get(txn) == "commit"]
        return visible[-1] if visible else -1

    def _commit(self, process: int, generation: int, key: Key, offset: int) -> Steps:
        member = self._member(process, generation) | {"value": {key: offset}}
        outcome = self.rng.choice((*ACKED, "written", "not written"))
        self.event(process, "invoke", "commit", **member)
        yield
        stale = generation != self.generation
        if not stale and outcome != "not written":
            self.commits[key].append((offset, None))
        yield
        status = "info" if outcome != "ok" else "fail" if stale else "ok"
        self.event(process, status, "commit", **member)

    def _committed(self, process: int, key: Key) -> Steps:
        self.event(process, "invoke", "committed", group="g")
        yield
        value = {key: self._committed_offset(key)}
        yield
        self.event(process, "ok", "committed", group="g", value=value)

    def processor(self) -> Steps:
        """One or two members, one after the other, process records in a transaction."""
        for _ in range(self.rng.randint(1, 2)):
            process, source, target = self.new_process(), "t-0", self.rng.choice(list(self.partitions))
            generation, txn, positions = self._join(process, [source]), f"y{process}", dict[Key, int]()
            self._begin(process, txn, 0)
            yield
            self._resume(positions, [source], "read_committed")
            before = dict(positions)
            yield from self.poll(process, positions, "read_committed", group="g", txn=txn)
            yield from self.send(process, target, txn)
            moved = positions != before
            accepted = moved and (yield from self._send_offsets(process, generation, txn, {source: positions[source]}))
            yield from self.end(process, txn, {target}, "commit" if accepted or not moved else "abort")

    def _send_offsets(self, process: int, generation: int, txn: str, offsets: dict[Key, int]) -> Any:
        """Send the offsets in the transaction, and return whether they were accepted."""
        member = self._member(process, generation) | {"txn": txn, "value": offsets}
        self.event(process, "invoke", "send_offsets", **member)
        yield
        stale = generation != self.generation
        for key, offset in offsets.items() if not stale else ():
            self.commits[key].append((offset, txn))
        yield
        self.event(process, "fail" if stale else "ok", "send_offsets", **member)
        return not stale
