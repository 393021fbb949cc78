"""Read an input as lines of bounded length: a local file or pyarrow.fs address, compressed or not."""

import gzip
import io
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, cast

from highwater.errors import UsageError
from highwater.reports.importers.quarantine import Quarantine
from highwater.temporary import temporary_folder

LINE_LIMIT = 64 << 20  # bytes; a longer line is skipped in pieces of this size and quarantined
HEAD = 64 << 10
BLOCK = 256 << 10  # bytes read at once
GZIP = b"\x1f\x8b"
STANDARD_INPUT = "-"


@contextmanager
def open_bytes(where: str) -> Iterator[IO[bytes]]:
    """Open for reading; gzip is detected from content. Raises UsageError if it cannot be opened."""
    with _open_raw(where) as raw:
        if raw.peek(2)[:2] == GZIP:
            yield io.BufferedReader(Unpacked(raw), 1 << 20)
        else:
            yield raw


@contextmanager
def seekable(where: str) -> Iterator[str]:
    """Yield a path whose content can be read more than once: `-` and pipes are first copied to a temporary file."""
    is_pipe = "://" not in where and Path(where).is_fifo()
    if where != STANDARD_INPUT and not is_pipe:
        yield where
        return
    with temporary_folder("audit-") as folder:
        copy = folder / "history"
        with open(where, "rb") if is_pipe else nullcontext(sys.stdin.buffer) as source, copy.open("wb") as sink:  # noqa: PTH123
            shutil.copyfileobj(source, sink)
        yield str(copy)


class Unpacked(io.RawIOBase):
    """A gzip stream that ends at the first error; `cut` then holds the reason."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._stream = gzip.GzipFile(fileobj=packed)
        self.cut: str | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.cut = f"cannot be decompressed further: {error}"
            return 0
        buffer[: len(data)] = data
        return len(data)


def cut_of(source: IO[bytes]) -> str | None:
    """Return why a compressed source ended early, None if it did not."""
    raw = getattr(source, "raw", None)
    return raw.cut if isinstance(raw, Unpacked) else None


def _open_raw(where: str) -> io.BufferedReader:
    try:
        return _open_address(where) if "://" in where else open(where, "rb")  # noqa: PTH123
    except (OSError, ValueError, ImportError) as error:
        what = f"cannot read this history ({getattr(error, 'strerror', None) or error})"
        raise UsageError(what, where=where, hint="give the path of a history, or a folder of them") from error


def _open_address(address: str) -> io.BufferedReader:
    from pyarrow.fs import FileSystem

    system, path = FileSystem.from_uri(address)
    return io.BufferedReader(cast("io.RawIOBase", system.open_input_stream(path)), 1 << 20)


def read_head(where: str) -> bytes:
    """Return the first bytes, decompressed: enough to detect the format."""
    with open_bytes(where) as source:
        head = source.read(HEAD)
        if not head and (cut := cut_of(source)):
            raise UsageError(cut, where=where, hint="take the compressed file as it was written")
        return head


def blocks(where: str, quarantine: Quarantine) -> Iterator[bytes]:
    """Yield blocks of whole lines; the caller must count them in `quarantine.line`.

    Lines that are too long and a truncated gzip stream are quarantined.
    """
    with open_bytes(where) as source:
        while block := source.read(BLOCK):
            last = b"" if block.endswith(b"\n") else source.readline(LINE_LIMIT)
            if len(last) < LINE_LIMIT or last.endswith(b"\n"):
                yield block + last
                continue
            if whole := block[: block.rfind(b"\n") + 1]:
                yield whole
            while last and not last.endswith(b"\n"):
                last = source.readline(LINE_LIMIT)
            quarantine.line += 1
            quarantine.add(f"longer than {LINE_LIMIT >> 20} MB")
        if cut := cut_of(source):
            quarantine.add(cut)


def numbered_lines(where: str, quarantine: Quarantine) -> Iterator[bytes]:
    """Yield single lines, with the line number in `quarantine.line`."""
    for block in blocks(where, quarantine):
        for line in io.BytesIO(block):
            quarantine.line += 1
            yield line
