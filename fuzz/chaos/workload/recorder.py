"""Records the history of a run from many threads."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from highwater.spec.formats.history import NEMESIS, Config, Event, HistoryWriter


class Recorder:
    """Writes one history. A lock covers index, time and write, so the order of lines is the order of events."""

    def __init__(self, path: Path, config: Config) -> None:
        self._file = path.open("wb")
        self._writer = HistoryWriter(self._file, config)
        self._lock = threading.Lock()
        self._started_ns = time.monotonic_ns()
        self.counts: dict[str, int] = {}
        self.mirrors: list[Recorder] = []
        """Other histories of the same run, which record the same faults."""
        self.listeners: list[Callable[[str, Any, str | None], None]] = []

    def record(self, process: int | str, kind: str, f: str, **fields: Any) -> None:
        with self._lock:
            if self._file.closed:
                return
            now_ns = time.monotonic_ns() - self._started_ns
            event = Event(index=0, time_ns=now_ns, process=process, type=kind, f=f, **fields)  # type: ignore[arg-type]
            self._writer.append(event)
            self.counts[f"{f} {kind}"] = self.counts.get(f"{f} {kind}", 0) + 1

    def nemesis(self, f: str, value: Any = None, node: str | None = None) -> None:
        """Record an event of the nemesis here and in all mirrors, and pass it to the listeners."""
        self.record(NEMESIS, "info", f, value=value, node=node)
        self.flush()
        for other in self.mirrors:
            other.nemesis(f, value, node)
        for listener in self.listeners:
            listener(f, value, node)

    def flush(self) -> None:
        if not self._file.closed:
            self._writer.flush()

    def close(self) -> None:
        """Write the trailer and close the file; a second call has no effect."""
        with self._lock:
            if not self._file.closed:
                self._writer.finish()
                self._file.close()
