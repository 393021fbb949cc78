"""How a plant tells what happened: operations on a topic of its own, one after the other unless it says otherwise."""

from collections.abc import Mapping
from typing import Any

from highwater.reports.synth.context import Actor, Stage

PAUSE_MS = 0.5
Pairs = Mapping[int, int | None]


class Story:
    """Each method is one operation of a process of its own, unless `by` names one."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.topic = f"plant{number}"
        self.key = f"{self.topic}-0"
        self.group = f"{self.topic}-group"

    def values(self, count: int) -> list[int]:
        return [self.stage.value() for _ in range(count)]

    def process(self) -> int:
        return self.stage.process()

    def op(
        self, f: str, asked: dict[str, Any], told: dict[str, Any], *, by: int | None = None, end: str = "ok"
    ) -> Actor:
        process = self.process() if by is None else by
        self.stage.event(process, "invoke", f, **asked)
        yield self.stage.delay(PAUSE_MS)
        self.stage.event(process, end, f, **{**asked, **told})
        yield self.stage.delay(PAUSE_MS)

    def at(self, partition: int = 0) -> dict[str, Any]:
        return {"topic": self.topic, "partition": partition}

    def send(self, value: int | None, offset: int | None = None, *, by: int | None = None, **asked: Any) -> Actor:
        """Without an offset nobody knows what became of it."""
        where = {**self.at(asked.pop("partition", 0)), "value": value, **asked}
        end = "info" if offset is None else "ok"
        yield from self.op("send", where, {"offset": offset}, by=by, end=end)

    def sends(self, *values: int) -> Actor:
        """To successive offsets, from one process."""
        process = self.process()
        for offset, value in enumerate(values):
            yield from self.send(value, offset, by=process)

    def fetch(self, position: int, records: Pairs, *, partition: int = 0, isolation: str = "read_uncommitted",
              **told: Any) -> Actor:  # fmt: skip
        asked = {**self.at(partition), "position": position, "isolation": isolation}
        yield from self.op("fetch", asked, {"value": list(records.items()), **told})

    def committed_fetch(self, records: Pairs, *, partition: int = 0) -> Actor:
        yield from self.fetch(0, records, partition=partition, isolation="read_committed")

    def assign(self, process: int, **fields: Any) -> None:
        self.stage.event(process, "info", "assign", value=[self.key], **fields)

    def poll(self, process: int, records: Pairs, *, key: str = "", **fields: Any) -> Actor:
        told = {"value": {key or self.key: list(records.items())}}
        yield from self.op("poll", fields, told, by=process)

    def begin(self, name: str) -> str:
        txn = f"{self.topic}/{name}"
        self.stage.event(self.process(), "info", "begin_txn", txn=txn)
        return txn

    def end(self, txn: str, value: str = "commit", *, end: str = "ok") -> Actor:
        yield from self.op("end_txn", {"txn": txn, "value": value}, {}, end=end)

    def commit(self, offset: int, *, by: int | None = None, **fields: Any) -> Actor:
        yield from self.op("commit", {"group": self.group, "value": {self.key: offset}, **fields}, {}, by=by)

    def committed(self, offset: int) -> Actor:
        yield from self.op("committed", {"group": self.group}, {"value": {self.key: offset}})

    def sync(self, member: str, generation: int) -> Actor:
        asked = {"group": self.group, "member_id": member, "generation_id": generation, "node": "1"}
        yield from self.op("sync", asked, {"value": [self.key]})

    def metadata(self, node: str, leader: int, epoch: int) -> Actor:
        yield from self.op("metadata", {"node": node}, {"value": {self.key: [leader, epoch]}})
