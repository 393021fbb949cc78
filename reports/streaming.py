"""`highwater audit --follow DIR --engine spark`: Structured Streaming finds new files, its session audits them."""

import queue
import re
import threading
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.reports.execution.spark import Spark
from highwater.reports.follow import END, POLL_INTERVAL_S, arrived

COLUMNS: Final = "path string, modificationTime timestamp, length long, content binary"
EVERY: Final = "200 milliseconds"
NEVER_TOO_OLD: Final = "36500d"
"""Spark would otherwise ignore files that are a week older than the newest one."""


class Streamed:
    """New files of a Spark stream. A batch ends when its files were read and audited.

    The constructor starts Spark, which installs its own SIGINT handler: install other handlers after it.
    """

    def __init__(self, spark: Spark, checkpoint: Path | None = None) -> None:
        self._session, self._checkpoint = spark.session(), checkpoint
        self._batches: queue.Queue[tuple[list[str], threading.Event]] = queue.Queue()
        self._over = threading.Event()

    def __call__(self, folder: Path, stop: threading.Event, known: Collection[Path]) -> Generator[list[Path]]:
        """Yield new files until the end marker or `stop`; UsageError if the stream ends before."""
        reported = set(known)
        query = self._query(folder)
        try:
            while not stop.is_set():
                ended = (folder / END).exists()
                try:
                    names, judged = self._batches.get(timeout=POLL_INTERVAL_S)
                except queue.Empty:
                    if ended and reported.issuperset(_with_something(folder)):
                        return
                    if not query.isActive:
                        reason = str(query.exception() or "it was stopped").strip().splitlines()[0]
                        raise UsageError(f"the stream ended: {reason}", where=str(folder)) from None
                    continue
                files = {folder / name for name in names} - reported  # a stream may report a file twice
                reported.update(files)
                if files:
                    yield sorted(files)
                judged.set()
        finally:
            self._over.set()
            query.stop()

    def _query(self, folder: Path) -> Any:
        """Stream the names only; this process reads the files in order, since an operation may end in another file."""
        stream = self._session.readStream.format("binaryFile").schema(COLUMNS).option("maxFileAge", NEVER_TOO_OLD)
        names = stream.load(re.sub(r"([\[\]{}*?\\])", r"\\\1", str(folder.resolve()))).select("path")
        writer = names.writeStream.foreachBatch(self._hand_over).trigger(processingTime=EVERY)
        if self._checkpoint is not None:
            writer = writer.option("checkpointLocation", (self._checkpoint / "stream").resolve().as_uri())
        return writer.start()

    def _hand_over(self, batch: Any, _: int) -> None:
        """Queue the names of a batch and wait for its audit; Spark calls it in a thread that `stop` waits for."""
        names = [row.path.rpartition("/")[2] for row in batch.collect()]
        judged = threading.Event()
        if names:
            self._batches.put((names, judged))
            while not judged.wait(POLL_INTERVAL_S) and not self._over.is_set():
                continue


def _with_something(folder: Path) -> set[Path]:
    """Return the files that Spark reports: complete and not empty."""
    return {path for path in arrived(folder) if path.stat().st_size}
