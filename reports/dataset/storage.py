"""Folders of datasets: local ones, and addresses such as s3a://bucket/dataset that Spark's Hadoop can read.

The driver reads an address with the Hadoop file system of the Spark session, with the settings and credentials that the
executors use too. A Python worker has no access to it: there, slices of a large partition are read by pyarrow, with the
S3 settings (`fs.s3a.*`) that the driver passes on.
"""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError

S3A: Final = {
    "fs.s3a.access.key": "access_key",
    "fs.s3a.secret.key": "secret_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.endpoint": "endpoint_override",
}
"""Arguments of pyarrow's S3FileSystem; without keys both look for them in the environment and the machine's role."""
WITHOUT_HADOOP: Final = ("s3://", "file://")
"""Addresses of single histories that pyarrow reads; Hadoop has other names for them, s3a and plain paths."""


def is_remote(where: object) -> bool:
    """Return whether this is an address that may hold a dataset for Spark."""
    return "://" in str(where) and not str(where).startswith(WITHOUT_HADOOP)


def folder_of(where: "Path | str | RemoteFolder") -> "Path | RemoteFolder":
    """Return the folder at a path or address."""
    if isinstance(where, RemoteFolder):
        return where
    return RemoteFolder(str(where).rstrip("/"), _s3_options()) if is_remote(where) else Path(where)


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """A file or folder at an address, with the few methods of `Path` that reading a dataset needs."""

    address: str
    s3_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __truediv__(self, name: str) -> "RemoteFolder":
        return RemoteFolder(f"{self.address}/{name}", self.s3_options)

    def __str__(self) -> str:
        return self.address

    def absolute(self) -> "RemoteFolder":
        return self

    def exists(self) -> bool:
        """Return whether there is a file; UsageError if no file system can say so."""
        try:
            system, path = self._hadoop()
            return bool(system.exists(path))
        except UsageError:
            raise
        except Exception as error:
            raise _unreadable(self.address, error) from error

    def read_bytes(self) -> bytes:
        with self.open() as file:
            data: bytes = file.read()
        return data

    def open(self) -> Any:
        """Open for reading at any position; OSError if that fails."""
        if _spark_context() is None:
            return self._open_with_pyarrow()
        try:
            system, path = self._hadoop()
            return HadoopFile(system.open(path), system.getFileStatus(path).getLen())
        except Exception as error:
            raise OSError(_first_line(error)) from error

    def _hadoop(self) -> tuple[Any, Any]:
        context = _spark_context()
        if context is None:
            raise UsageError("only Spark reads a dataset at this address", where=self.address, hint="--engine spark")
        path = context._jvm.org.apache.hadoop.fs.Path(self.address)
        return path.getFileSystem(context._jsc.hadoopConfiguration()), path

    def _open_with_pyarrow(self) -> Any:
        from pyarrow.fs import FileSystem, S3FileSystem

        scheme, _, path = self.address.partition("://")
        if scheme == "s3a":
            return S3FileSystem(**dict(self.s3_options)).open_input_file(path)
        system, path = FileSystem.from_uri(self.address)
        return system.open_input_file(path)


class HadoopFile(io.RawIOBase):
    """A Hadoop input stream as a Python file."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream, self._size, self._position = stream, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._stream.seek(min(self._position, self._size))
        data = self._stream.readNBytes(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _spark_context() -> Any:
    try:
        from pyspark import SparkContext
    except ImportError:
        return None
    return SparkContext._active_spark_context


def _s3_options() -> tuple[tuple[str, str], ...]:
    context = _spark_context()
    if context is None:
        return ()
    conf = context._jsc.hadoopConfiguration()
    return tuple((name, value) for key, name in S3A.items() if (value := conf.get(key)))


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _unreadable(address: str, error: Exception) -> UsageError:
    hint = "docs/audit/spark.md says what Spark needs for s3a and hdfs"
    return UsageError(f"Hadoop cannot read it: {_first_line(error)}", where=address, hint=hint)
