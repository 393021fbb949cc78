"""`highwater audit --follow DIR`: audit a history while its files arrive, and at the end the whole.

Writers create a hidden file and rename it. A file is read once, when the events before its first one were read: files
may arrive in any order, but at most `LATE` are held back. An operation may begin in one file and end in another. The
writer creates the file `_SUCCESS` at the end.

What was read is kept on disk, with `--checkpoint DIR` also after the process ended: the next one continues behind the
last checkpoint. The history so far is audited when it has grown by `GROWTH`, so all audits together take a constant
multiple of the time of the last one.
"""

import pickle
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol

from highwater.errors import UsageError
from highwater.reports.audit import audit_history
from highwater.reports.dataset.reader import read_dataset
from highwater.reports.dataset.writer import Writer, disk_errors
from highwater.reports.execution.partitions import Engine
from highwater.reports.execution.reading import AT_ONCE, garbage_collection_paused, replaced
from highwater.reports.importers import native
from highwater.reports.importers.formats import History
from highwater.reports.importers.jepsen_shape import sound
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import blocks
from highwater.reports.ingest.events import Ingest
from highwater.reports.verdicts import AuditResult
from highwater.signals import TERMINATION_SIGNALS
from highwater.spec.formats.history import Config
from highwater.temporary import temporary_folder

END: Final = "_SUCCESS"
POLL_INTERVAL_S: Final = 0.2
LATE: Final = 64
"""Files that wait for an earlier one; then the events between are reported as missing."""
SMALL: Final = 200_000
"""Operations of a history that is audited after each batch of files: it takes less than a second."""
GROWTH: Final = 0.2
VerdictReporter = Callable[[AuditResult], None]


class Arrivals(Protocol):
    """Source of new files: this process or Spark."""

    def __call__(self, folder: Path, stop: threading.Event, known: Collection[Path]) -> Generator[list[Path]]:
        """Yield files that are not `known`, until the end marker is there or `stop` is set."""


def poll_folder(folder: Path, stop: threading.Event, known: Collection[Path]) -> Generator[list[Path]]:
    """Yield new files of a folder, which is listed every `POLL_INTERVAL_S`."""
    reported = set(known)
    while not stop.is_set():
        ended = (folder / END).exists()  # test first: files that precede the marker are then listed below
        files = [path for path in arrived(folder) if path not in reported]
        if files:
            reported.update(files)
            yield files
        elif ended:
            return
        else:
            stop.wait(POLL_INTERVAL_S)


def arrived(folder: Path) -> list[Path]:
    """Return the complete files in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._" and path.is_file())


def follow(
    folder: Path,
    report: VerdictReporter,
    overrides: dict[str, Any] | None = None,
    engine: Engine | None = None,
    arrivals: Arrivals = poll_folder,
    checkpoint: Path | None = None,
) -> AuditResult:
    """Report verdicts while files arrive, and return that of the whole history; SIGINT ends it early.

    UsageError if the folder does not exist, or if the checkpoint is of another folder.
    """
    if not folder.is_dir():
        raise UsageError("no such folder", where=str(folder), hint="create it before the writers start")
    with _checkpoint_folder(checkpoint) as place, _interruption() as stop:
        followed = _FollowedHistory(folder, place, overrides, engine)
        present = [path for path in arrived(folder) if path.name not in followed.state.consumed]
        known = {folder / name for name in followed.state.consumed} | set(present)
        with closing(arrivals(folder, stop, known)) as later:
            for files in chain([present] if present else [], later):
                followed.read(files)
                if followed.is_due():
                    report(followed.verdict())
        return followed.finish(complete=not stop.is_set())


@contextmanager
def _checkpoint_folder(checkpoint: Path | None) -> Iterator[Path]:
    if checkpoint is not None:
        checkpoint.mkdir(parents=True, exist_ok=True)
        yield checkpoint
        return
    with temporary_folder("follow-") as place:
        yield place


@contextmanager
def _interruption() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets, so that a running audit completes; the second interrupts it."""
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        stop.set()
        for signal_number in TERMINATION_SIGNALS:
            signal.signal(signal_number, signal.default_int_handler)

    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, ask) for number in TERMINATION_SIGNALS} if main else {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class _State:
    """Everything that a process needs to continue, beside the rows in the files `N.piece`."""

    folder: str
    reading: Ingest = field(default_factory=Ingest)
    quarantine: Quarantine = field(default_factory=Quarantine)
    config: Config = field(default_factory=Config)
    opened: dict[int | str, str] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)
    pieces: int = 0


class _FollowedHistory:
    """The history read so far. Verdicts are computed on a copy, in which open operations are closed."""

    def __init__(self, folder: Path, place: Path, overrides: dict[str, Any] | None, engine: Engine | None) -> None:
        self._folder, self._place, self._overrides, self._engine = folder, place, overrides, engine
        self._waiting: dict[Path, int] = {}  # files that came early, with the index of their first event
        self._last: AuditResult | None = None
        self._audited = self._verdicts = 0
        self._changed = False
        self.state = self._load()

    def _load(self) -> _State:
        file = self._place / "state"
        if not file.exists():
            return _State(str(self._folder.resolve()), config=replaced(Config(), self._overrides))
        state: _State = pickle.loads(file.read_bytes())
        state.config = replaced(state.config, self._overrides)
        if state.folder != str(self._folder.resolve()):
            what = f"a checkpoint of {state.folder}"
            raise UsageError(what, where=str(self._place), hint="give each followed folder its own --checkpoint")
        return state

    def read(self, files: list[Path]) -> None:
        """Read the files whose turn it is, and those that waited for them."""
        self._waiting |= {path: _first_index(path) for path in files}
        while (path := self._next()) is not None:
            self._read(path)
        if self.state.reading.pending >= AT_ONCE:
            self._save()

    def _next(self) -> Path | None:
        """Remove and return the file with the next event, or any that must not wait longer."""
        first = min(self._waiting, key=lambda path: (self._waiting[path], path.name), default=None)
        if first is None or (self._waiting[first] > self.state.quarantine.due and len(self._waiting) <= LATE):
            return None
        del self._waiting[first]
        return first

    def _read(self, path: Path) -> None:
        state, self._changed = self.state, True
        events = native.events(blocks(str(path), state.quarantine), state.quarantine)
        with garbage_collection_paused():
            for event in sound(events, state.quarantine, state.opened):
                if event.f == "header" and not state.reading.has_events:
                    state.config = replaced(native.config_of(event, state.quarantine), self._overrides)
                else:
                    state.reading.take(event)
        state.consumed.add(path.name)

    def is_due(self) -> bool:
        """Return whether the history has grown enough since the last verdict."""
        operations = self.state.reading.operations
        return operations > self._audited * (1 + GROWTH) or self._audited < operations <= SMALL

    def _save(self) -> None:
        """Write the rows read since the last call, then the state that refers to them."""
        state = self.state
        with disk_errors(self._place):
            piece = pickle.dumps((state.reading.drain(), state.reading.tables.drain()))
            (self._place / f"{state.pieces}.piece").write_bytes(piece)
            state.pieces += 1
            hidden = self._place / ".state"
            hidden.write_bytes(pickle.dumps(state))
            hidden.replace(self._place / "state")

    def verdict(self) -> AuditResult:
        """Return the verdict of the history as if it ended here."""
        self._save()
        state: _State = pickle.loads(pickle.dumps(self.state))
        history = History("ndjson", state.config, iter(()), state.quarantine)
        self._verdicts += 1
        dataset = self._place / f"{self._verdicts}.dataset"  # a new name each time: workers cache datasets by name
        with Writer(dataset) as writer:
            for number in range(state.pieces):
                writer.add(*pickle.loads((self._place / f"{number}.piece").read_bytes()))
            writer.finish(state.reading, history, ("", 0, 0))
        self._last = audit_history(read_dataset(dataset), str(self._folder), self._engine)
        self._audited, self._changed = self.state.reading.operations, False
        shutil.rmtree(dataset)
        return self._last

    def finish(self, *, complete: bool) -> AuditResult:
        """Read files that still wait, and return the verdict; a complete history has a trailer if it promised one."""
        for path in sorted(self._waiting, key=self._waiting.__getitem__):
            self._read(path)
        self._waiting.clear()
        if complete:
            count = self.state.quarantine.count
            native.require_trailer(self.state.config, self.state.quarantine)
            self._changed |= count < self.state.quarantine.count
        return self.verdict() if self._last is None or self._changed else self._last


def _first_index(path: Path) -> int:
    """Return the index of the first event of a file; -1 if its first line is no event, so that it need not wait."""
    first = next(native.events(blocks(str(path), Quarantine()), Quarantine(due=-1)), None)
    return -1 if first is None else first.index
