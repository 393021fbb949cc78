"""`highwater audit --follow DIR`: the verdict of a history whose files are still coming, and in the end of the whole.

Writers make a hidden file and rename it; files are read once, in the order of their names, and go on in one another.
Whoever is done puts a file `_SUCCESS` there.
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
from highwater.reports.dataset.writer import Writer, telling_of_the_disk
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
LOOK_AGAIN_S: Final = 0.2
Told = Callable[[AuditResult], None]


class Arrivals(Protocol):
    """Who looks for files: this process, or Spark."""

    def __call__(self, folder: Path, stop: threading.Event) -> Generator[list[Path]]:
        """New files in the order of their names, whenever there are some, until the end is told or `stop` is set."""


def looked_for(folder: Path, stop: threading.Event) -> Generator[list[Path]]:
    seen = set[Path]()
    while not stop.is_set():
        ended = (folder / END).exists()  # before the look: what came before it is seen
        files = [path for path in arrived(folder) if path not in seen]
        if files:
            seen.update(files)
            yield files
        elif ended:
            return
        else:
            stop.wait(LOOK_AGAIN_S)


def arrived(folder: Path) -> list[Path]:
    """Files that are whole, in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._" and path.is_file())


def follow(
    folder: Path,
    tell: Told,
    overrides: dict[str, Any] | None = None,
    engine: Engine | None = None,
    arrivals: Arrivals = looked_for,
) -> AuditResult:
    """Tells the verdict so far whenever files came, and returns that of the whole; an interruption ends it, too.

    What was read is on disk, in pieces. UsageError for a folder that there is not.
    """
    if not folder.is_dir():
        raise UsageError("there is no such folder", where=str(folder), hint="make it before anybody writes there")
    quarantine = Quarantine()
    with _Pieces(str(folder), engine) as pieces, _interruption() as stop:
        known: list[History] = []
        judged: list[AuditResult] = []

        def whole_lines() -> Iterator[bytes]:
            for files in found:
                judged.clear()
                for path in files:
                    yield from blocks(str(path), quarantine)
                if known:
                    judged.append(pieces.verdict(known[0]))
                    tell(judged[0])

        with closing(arrivals(folder, stop)) as found:
            config, events = native.read_blocks(whole_lines(), quarantine)
            known.append(History("ndjson", replaced(config, overrides), sound(events, quarantine), quarantine))
            read_events(pieces.reading, known[0], str(folder), when_full=pieces.keep)
        return judged[0] if judged else pieces.verdict(known[0])


@contextmanager
def _interruption() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C, so that what is being judged is judged; the second ends it in the middle."""
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        stop.set()
        for each in TERMINATION_SIGNALS:
            signal.signal(each, signal.default_int_handler)

    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, ask) for number in TERMINATION_SIGNALS} if main else {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Pieces:
    """What came so far. A verdict is that of a copy, where what is open may be closed, while here it stays open."""

    def __init__(self, name: str, engine: Engine | None) -> None:
        self.reading = Ingest()
        self._name, self._engine = name, engine
        self._place = tempfile.TemporaryDirectory(prefix="highwater-follow-")
        self._folder = Path(self._place.name)
        self._kept: list[Path] = []

    def __enter__(self) -> "_Pieces":
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()

    def keep(self, reading: Ingest) -> None:
        """Takes what was read since the last time out of memory."""
        path = self._folder / f"{len(self._kept)}.piece"
        with telling_of_the_disk(self._folder):
            path.write_bytes(pickle.dumps((reading.taken(), reading.tables.taken())))
        self._kept.append(path)

    def verdict(self, history: History) -> AuditResult:
        """As if it ended here."""
        self.keep(self.reading)
        copy: Ingest = pickle.loads(pickle.dumps(self.reading))
        dataset = self._folder / f"{len(self._kept)}.dataset"  # workers remember a dataset by its name
        with Writer(dataset) as writer:
            for path in self._kept:
                writer.add(*pickle.loads(path.read_bytes()))
            writer.finish(copy, history, ("", 0, 0))
        result = audit_history(read_dataset(dataset), self._name, self._engine)
        shutil.rmtree(dataset)
        return result
