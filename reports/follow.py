"""`highwater audit --follow DIR`: audit a history while its files arrive, and at the end the whole.

Writers create a hidden file and rename it. Files are read once, in the order of their names; an operation may begin in
one file and end in another. The writer creates the file `_SUCCESS` at the end.
"""

import pickle
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from highwater.errors import UsageError
from highwater.reports.audit import audit_history
from highwater.reports.dataset.reader import read_dataset
from highwater.reports.dataset.writer import Writer, disk_errors
from highwater.reports.execution.partitions import Engine
from highwater.reports.execution.reading import read_events, replaced
from highwater.reports.importers import native
from highwater.reports.importers.formats import History
from highwater.reports.importers.jepsen_shape import sound
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import blocks
from highwater.reports.ingest.events import Ingest
from highwater.reports.verdicts import AuditResult
from highwater.signals import TERMINATION_SIGNALS

END: Final = "_SUCCESS"
POLL_INTERVAL_S: Final = 0.2
VerdictReporter = Callable[[AuditResult], None]


class Arrivals(Protocol):
    """Source of new files: this process or Spark."""

    def __call__(self, folder: Path, stop: threading.Event) -> Generator[list[Path]]:
        """Yield new files in the order of their names, until the end marker is there or `stop` is set."""


def poll_folder(folder: Path, stop: threading.Event) -> Generator[list[Path]]:
    """Yield new files of a folder, which is listed every `POLL_INTERVAL_S`."""
    reported = set[Path]()
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
) -> AuditResult:
    """Report the verdict after each batch of files, and return that of the whole history; SIGINT ends it early.

    Rows that were read are kept on disk. UsageError if the folder does not exist.
    """
    if not folder.is_dir():
        raise UsageError("no such folder", where=str(folder), hint="create it before the writers start")
    quarantine = Quarantine()
    with _FollowedHistory(str(folder), engine) as followed, _interruption() as stop:
        known: list[History] = []
        judged: list[AuditResult] = []

        def whole_lines() -> Iterator[bytes]:
            for files in file_batches:
                judged.clear()
                for path in files:
                    yield from blocks(str(path), quarantine)
                if known:
                    judged.append(followed.verdict(known[0]))
                    report(judged[0])

        with closing(arrivals(folder, stop)) as file_batches:
            config, events = native.read_blocks(whole_lines(), quarantine)
            known.append(History("ndjson", replaced(config, overrides), sound(events, quarantine), quarantine))
            read_events(followed.reading, known[0], str(folder), when_full=followed.keep)
        return judged[0] if judged else followed.verdict(known[0])


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


class _FollowedHistory:
    """The history read so far. Verdicts are computed on a copy, in which open operations are closed."""

    def __init__(self, name: str, engine: Engine | None) -> None:
        self.reading = Ingest()
        self._name, self._engine = name, engine
        self._place = tempfile.TemporaryDirectory(prefix="highwater-follow-")
        self._folder = Path(self._place.name)
        self._kept: list[Path] = []

    def __enter__(self) -> "_FollowedHistory":
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()

    def keep(self, reading: Ingest) -> None:
        """Write the rows and steps read since the last call to disk."""
        path = self._folder / f"{len(self._kept)}.piece"
        with disk_errors(self._folder):
            path.write_bytes(pickle.dumps((reading.drain(), reading.tables.drain())))
        self._kept.append(path)

    def verdict(self, history: History) -> AuditResult:
        """Return the verdict of the history as if it ended here."""
        self.keep(self.reading)
        copy: Ingest = pickle.loads(pickle.dumps(self.reading))
        dataset = self._folder / f"{len(self._kept)}.dataset"  # a new name each time: workers cache datasets by name
        with Writer(dataset) as writer:
            for path in self._kept:
                writer.add(*pickle.loads(path.read_bytes()))
            writer.finish(copy, history, ("", 0, 0))
        result = audit_history(read_dataset(dataset), self._name, self._engine)
        shutil.rmtree(dataset)
        return result
