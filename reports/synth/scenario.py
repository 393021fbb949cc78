"""Operations of a planted anomaly on its own topic, sequential unless stated otherwise."""

from collections.abc import Mapping
from typing import Any

from highwater.reports.synth.context import Actor, SynthesisContext

PAUSE_MS = 0.5
Pairs = Mapping[int, int | None]


class PlantedScenario:
    """Emits operations; each method is one operation of a new process, unless `by` names one."""

    def __init__(self, context: SynthesisContext, number: int) -> None:
        self.context = context
        self.topic = f"plant{number}"
        self.key = f"{self.topic}-0"
        self.group = f"{self.topic}-group"

    def values(self, count: int) -> list[int]:
        return [self.context.value() for _ in range(count)]

    def process(self) -> int:
        return self.context.process()

    def op(
        self, f: str, request: dict[str, Any], result: dict[str, Any], *, by: int | None = None, end: str = "ok"
    ) -> Actor:
        process = self.process() if by is None else by
        self.context.event(process, "invoke", f, **request)
        yield self.context.delay(PAUSE_MS)
        self.context.event(process, end, f, **{**request, **result})
        yield self.context.delay(PAUSE_MS)

    def at(self, partition: int = 0) -> dict[str, Any]:
        return {"topic": self.topic, "partition": partition}

    def send(self, value: int | None, offset: int | None = None, *, by: int | None = None, **request: Any) -> Actor:
        """Send a record; without an offset the outcome is unknown."""
        where = {**self.at(request.pop("partition", 0)), "value": value, **request}
        end = "info" if offset is None else "ok"
        yield from self.op("send", where, {"offset": offset}, by=by, end=end)

    def sends(self, *values: int) -> Actor:
        """Send to successive offsets from one process."""
        process = self.process()
        for offset, value in enumerate(values):
            yield from self.send(value, offset, by=process)

    def fetch(self, position: int, records: Pairs, *, partition: int = 0, isolation: str = "read_uncommitted",
              **result: Any) -> Actor:  # fmt: skip
        request = {**self.at(partition), "position": position, "isolation": isolation}
        yield from self.op("fetch", request, {"value": list(records.items()), **result})

    def committed_fetch(self, records: Pairs, *, partition: int = 0) -> Actor:
        yield from self.fetch(0, records, partition=partition, isolation="read_committed")

    def assign(self, process: int, **fields: Any) -> None:
        self.context.event(process, "info", "assign", value=[self.key], **fields)

    def poll(self, process: int, records: Pairs, *, key: str = "", **fields: Any) -> Actor:
        result = {"value": {key or self.key: list(records.items())}}
        yield from self.op("poll", fields, result, by=process)

    def begin(self, name: str) -> str:
        txn = f"{self.topic}/{name}"
        self.context.event(self.process(), "info", "begin_txn", txn=txn)
        return txn

    def end(self, txn: str, value: str = "commit", *, end: str = "ok") -> Actor:
        yield from self.op("end_txn", {"txn": txn, "value": value}, {}, end=end)

    def commit(self, offset: int, *, by: int | None = None, **fields: Any) -> Actor:
        yield from self.op("commit", {"group": self.group, "value": {self.key: offset}, **fields}, {}, by=by)

    def committed(self, offset: int) -> Actor:
        yield from self.op("committed", {"group": self.group}, {"value": {self.key: offset}})

    def sync(self, member: str, generation: int) -> Actor:
        request = {"group": self.group, "member_id": member, "generation_id": generation, "node": "1"}
        yield from self.op("sync", request, {"value": [self.key]})

    def metadata(self, node: str, leader: int, epoch: int) -> Actor:
        yield from self.op("metadata", {"node": node}, {"value": {self.key: [leader, epoch]}})
