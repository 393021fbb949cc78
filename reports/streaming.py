"""`highwater audit --follow DIR --engine spark`: Structured Streaming tells of new files; its session judges them."""

import queue
import re
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.reports.execution.spark import Spark
from highwater.reports.follow import END, LOOK_AGAIN_S, arrived

COLUMNS: Final = "path string, modificationTime timestamp, length long, content binary"
EVERY: Final = "200 milliseconds"
NEVER_TOO_OLD: Final = "36500d"
"""Else a file whose time is a week before the newest one's would never be told."""


class Streamed:
    """The arrivals of a stream of files. A batch is over when its files were read and judged.

    Spark starts at once, and takes Ctrl-C for itself: whoever wants to have it asks for it later.
    """

    def __init__(self, spark: Spark) -> None:
        self._session = spark.session()
        self._batches: queue.Queue[tuple[list[str], threading.Event]] = queue.Queue()
        self._over = threading.Event()

    def __call__(self, folder: Path, stop: threading.Event) -> Generator[list[Path]]:
        """UsageError when Spark gives up."""
        seen = set[Path]()
        query = self._query(folder)
        try:
            while not stop.is_set():
                ended = (folder / END).exists()
                try:
                    names, judged = self._batches.get(timeout=LOOK_AGAIN_S)
                except queue.Empty:
                    if ended and seen.issuperset(_with_something(folder)):
                        return
                    if not query.isActive:
                        told = str(query.exception() or "it was stopped").strip().splitlines()[0]
                        raise UsageError(f"the stream ended: {told}", where=str(folder)) from None
                    continue
                files = {folder / name for name in names} - seen  # a stream may tell a file twice
                seen.update(files)
                if files:
                    yield sorted(files)
                judged.set()
        finally:
            self._over.set()
            query.stop()

    def _query(self, folder: Path) -> Any:
        """Only names come: files are read here, in their order, for an operation may end in another file."""
        stream = self._session.readStream.format("binaryFile").schema(COLUMNS).option("maxFileAge", NEVER_TOO_OLD)
        names = stream.load(re.sub(r"([\[\]{}*?\\])", r"\\\1", str(folder.resolve()))).select("path")
        return names.writeStream.foreachBatch(self._hand_over).trigger(processingTime=EVERY).start()

    def _hand_over(self, batch: Any, _: int) -> None:
        """Called by Spark in a thread of its own, which a stop waits for."""
        names = [row.path.rpartition("/")[2] for row in batch.collect()]
        judged = threading.Event()
        if names:
            self._batches.put((names, judged))
            while not judged.wait(LOOK_AGAIN_S) and not self._over.is_set():
                continue


def _with_something(folder: Path) -> set[Path]:
    """Spark tells nothing of empty files."""
    return {path for path in arrived(folder) if path.stat().st_size}
