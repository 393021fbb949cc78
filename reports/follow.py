"""`highwater audit --follow DIR`: the verdict of a history whose files are still coming, and in the end of the whole.

Writers make a hidden file and rename it; files are read once, in the order of their names, and go on in one another.
Whoever is done puts a file `_SUCCESS` there.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

from reports.audit import AuditResult, audit_history
from reports.importers import native
from reports.importers.formats import History
from reports.importers.quarantine import Quarantine
from reports.importers.shape import sound
from reports.importers.sources import numbered_lines
from reports.ingest.history import Ingest, read_events, replaced
from spec.formats.history import Config
from spec.formats.verdict import UsageError

END: Final = "_SUCCESS"
LOOK_AGAIN_S: Final = 0.2
Told = Callable[[AuditResult], None]


def follow(folder: Path, tell: Told, overrides: dict[str, Any] | None = None) -> AuditResult:
    """Tells the verdict so far whenever files came, and returns that of the whole; an interruption ends it, too.

    The history is held in memory. UsageError for a folder that there is not.
    """
    if not folder.is_dir():
        raise UsageError("there is no such folder", where=str(folder), mend="make it before anybody writes there")
    quarantine, reading = Quarantine(), Ingest()
    known: list[Config] = []

    def lines() -> Iterator[bytes]:
        for files in _arrivals(folder):
            for path in files:
                yield from numbered_lines(str(path), quarantine)
            if known:
                tell(_so_far(reading, known[0], quarantine, str(folder)))

    config, events = native.read_lines(lines(), quarantine)
    known.append(replaced(config, overrides))
    history = History("ndjson", known[0], sound(events, quarantine), quarantine)
    read_events(reading, history, str(folder))
    return _whole(reading, known[0], quarantine, str(folder))


def _arrivals(folder: Path) -> Iterator[list[Path]]:
    """New files, whenever there are some, until the end is told."""
    seen = set[Path]()
    try:
        while True:
            ended = (folder / END).exists()  # before the look: what came before it is seen
            files = sorted(path for path in folder.iterdir() if path not in seen and path.name[0] not in "._")
            if files:
                seen.update(files)
                yield files
            elif ended:
                return
            else:
                time.sleep(LOOK_AGAIN_S)
    except KeyboardInterrupt:
        return


def _whole(reading: Ingest, config: Config, quarantine: Quarantine, name: str) -> AuditResult:
    history = reading.ingested(config)
    history.quarantine = quarantine
    return audit_history(history, name)


def _so_far(reading: Ingest, config: Config, quarantine: Quarantine, name: str) -> AuditResult:
    """As if it ended here. In a fork, where what is open may be closed, while here it stays open."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child(out: Connection) -> None:
        out.send_bytes(msgspec.msgpack.encode(_whole(reading, config, quarantine, name)))

    process = context.Process(target=child, args=(sender,))
    process.start()
    sender.close()
    try:
        return msgspec.msgpack.decode(receiver.recv_bytes(), type=AuditResult)
    except EOFError as error:
        raise UsageError("the verdict so far could not be made", where=name, mend="see that there is memory") from error
    finally:
        process.join()
