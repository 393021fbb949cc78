"""Write a history while it is recorded: numbered lines after a header that is updated in place."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.spec.formats.history import NEMESIS, Config, Event, header, trailer

HEADER_BYTES: Final = 1024  # the header is padded to this size so that it can grow


SIGNED: Final = frozenset({"sequence", "timestamp_ms"})
"""Fields in which any number has a meaning; in the others Kafka has none for a number below -1."""


@dataclass(slots=True)
class Operation:
    """An open operation and its process, which has no other open operation."""

    process: int
    f: str


IMPOSSIBLE: Final = Operation(-1, "")
"""An operation on a partition below 0, which is not recorded: no broker has it."""


class Recording:
    """Appends events to a seekable binary file. Each open operation has its own process number."""

    def __init__(self, sink: IO[bytes], started_ms: int, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.config = Config(source="recorded", started_ms=started_ms)
        self.operations = 0
        self._sink = sink
        self._encode = msgspec.json.Encoder().encode
        self._next_index = 1
        self._clock_ns = clock_ns
        self._started_ns = clock_ns()
        self._idle: list[int] = []
        self._processes = 0
        self._write(self._header())

    def _header(self) -> bytes:
        return self._encode(header(self.config)).ljust(HEADER_BYTES - 1) + b"\n"

    def update_config(self, **changes: Any) -> None:
        """Update settings in the header as they become known."""
        config = msgspec.structs.replace(self.config, **changes)
        if config != self.config:
            self.config = config
            self._on_disk(lambda: self._sink.seek(0))
            self._write(self._header())
            self._on_disk(lambda: self._sink.seek(0, 2))

    def invoke(self, f: str, **fields: Any) -> Operation:
        if fields.get("partition", 0) < 0:
            return IMPOSSIBLE
        if self._idle:
            process = self._idle.pop()
        else:
            process, self._processes = self._processes, self._processes + 1
        self._append(process, "invoke", f, fields)
        self.operations += 1
        return Operation(process, f)

    def complete(self, operation: Operation, kind: str, **fields: Any) -> None:
        if operation is IMPOSSIBLE:
            return
        self._append(operation.process, kind, operation.f, fields)
        self._idle.append(operation.process)

    def append_info(self, f: str, **fields: Any) -> None:
        """Record an event that no request asked for."""
        self._append("recorder", "info", f, fields)

    def nemesis(self, f: str, value: Any = None, node: str | None = None) -> None:
        """Record a fault that a chaos run injects."""
        self._append(NEMESIS, "info", f, {"value": value, "node": node})

    def unrecorded(self, reason: str) -> None:
        """Write a line that auditors quarantine: something relevant may have happened but was not decoded."""
        self._write(self._encode({"index": self._next_index, "unrecorded": reason}) + b"\n")
        self._next_index += 1

    def _append(self, process: int | str, kind: str, f: str, fields: dict[str, Any]) -> None:
        elapsed = self._clock_ns() - self._started_ns
        known = {name: value for name, value in fields.items() if name in SIGNED or not _is_meaningless(value)}
        event = Event(index=self._next_index, time_ns=elapsed, process=process, type=kind, f=f, **known)  # type: ignore[arg-type]
        self._next_index += 1
        self._write(self._encode(event) + b"\n")

    def finish(self) -> None:
        """Write the trailer: no event follows."""
        self._write(self._encode(trailer(self._next_index)) + b"\n")

    def flush(self) -> None:
        self._on_disk(self._sink.flush)

    def _write(self, data: bytes) -> None:
        self._on_disk(lambda: self._sink.write(data))

    def _on_disk(self, step: Callable[[], object]) -> None:
        """Run a write step; an I/O error ends the recording, because a history with gaps is useless."""
        try:
            step()
        except OSError as error:
            where = str(getattr(self._sink, "name", "the history"))
            hint = "free disk space or write elsewhere"
            raise UsageError(f"cannot write ({error.strerror})", where=where, hint=hint) from error


def _is_meaningless(value: Any) -> bool:
    return isinstance(value, int) and value < -1
