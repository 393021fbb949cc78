"""Small histories for tests: each call such as `h.send(...)` records one completed operation."""

from pathlib import Path
from typing import Any

import msgspec

from highwater.reports.columns import Operations
from highwater.reports.ingest.events import Ingest
from highwater.reports.rules.findings import Promise, RuleFindings
from highwater.reports.rules.partition import check
from highwater.spec.formats.history import NEMESIS, Config, Event, header, trailer

PROMISED = Config(acks="all", idempotence=True, unclean_election=False, retention=False, compaction=False)


class History:
    """A history of partition `t-0`. `begin` and `end` record operations that overlap."""

    def __init__(self, config: Config = PROMISED) -> None:
        self.events = [header(config)]
        self._open: dict[int, dict[str, Any]] = {}
        self.waited_ns = 0

    def wait(self, ms: int) -> None:
        """Let time pass before the next event."""
        self.waited_ns += ms * 1_000_000

    def _add(self, process: int | str, kind: str, f: str, **fields: Any) -> None:
        index = len(self.events)
        time_ns = index * 1_000_000 + self.waited_ns
        self.events.append(Event(index=index, time_ns=time_ns, process=process, type=kind, f=f, **fields))  # type: ignore[arg-type]

    def begin(self, process: int, f: str, **fields: Any) -> None:
        where = {} if f == "poll" else {"topic": "t", "partition": 0}
        self._open[process] = {"f": f, **where, **fields}
        self._add(process, "invoke", f, **where, **fields)

    def end(self, process: int, kind: str = "ok", **fields: Any) -> None:
        opened = self._open.pop(process)
        f = opened.pop("f")
        self._add(process, kind, f, **{**opened, **fields})

    def send(self, value: int, offset: int | None = None, *, process: int = 0, kind: str = "ok", **fields: Any) -> None:
        self.begin(process, "send", value=value, **fields)
        self.end(process, kind, offset=offset)

    def poll(self, *records: tuple[int, int | None], process: int = 50, kind: str = "ok") -> None:
        self.begin(process, "poll")
        self.end(process, kind, value={"t-0": [list(record) for record in records]})

    def fetch(
        self, position: int, *records: tuple[int, int], end: int, process: int = 60, epoch: int | None = 0, **ends: int
    ) -> None:
        self.begin(process, "fetch", position=position, leader_epoch=epoch)
        self.end(process, "ok", value=[list(record) for record in records], high_watermark=end, **ends)

    def list_offsets(self, end: int, *, process: int = 70, epoch: int | None = 0) -> None:
        self.begin(process, "list_offsets", leader_epoch=epoch)
        self.end(process, "ok", high_watermark=end)

    def assign(self, process: int = 50, position: int | None = None) -> None:
        self._add(process, "info", "assign", value=["t-0"], position=position)

    def kill(self, node: str = "1") -> None:
        self._add(NEMESIS, "info", "kill", node=node)

    def phase(self, name: str) -> None:
        self._add(NEMESIS, "info", "phase", value=name)

    def operations(self) -> Operations:
        reading = Ingest()
        for event in self.events[1:]:
            reading.take(event)
        reading.finish()
        return reading.build()["t-0"]

    def found(self, *, acks_all: bool = True) -> list[RuleFindings]:
        return check(self.operations(), Promise(acks_all=acks_all))

    def rules(self, *, acks_all: bool = True) -> set[int]:
        """Return the rules that have a finding other than information."""
        return {found.rule for found in self.found(acks_all=acks_all) if not found.information}

    def write(self, path: Path) -> Path:
        encoder = msgspec.json.Encoder()
        events = [*self.events, trailer(len(self.events))]
        path.write_bytes(b"".join(encoder.encode(event) + b"\n" for event in events))
        return path
