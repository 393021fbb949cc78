"""Files of a dataset and their columns; `Operations`, `Step` and docs/audit/dataset.md define the columns."""

from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from highwater.reports.columns import NARROW, RECORDS, STORED
from highwater.reports.dataset.storage import RemoteFolder
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.ingest.inventory import Inventory
from highwater.spec.formats.history import Config, Event

VERSION: Final = 6
MANIFEST: Final = "dataset.json"
BUCKETS: Final = 64


AnyFolder = TypeVar("AnyFolder", Path, RemoteFolder, Path | RemoteFolder)


def bucket_of(partition: int) -> int:
    """Return the bucket of a partition number: at most `BUCKETS` files, and one file each if partitions are few."""
    return partition % BUCKETS


def bucket_file(folder: AnyFolder, bucket: int) -> AnyFolder:
    return folder / f"bucket-{bucket:02}.parquet"


def _schema(*columns: tuple[str, Any]) -> Any:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


_EACH = pa.list_(pa.field("element", pa.int64(), nullable=False))
OPERATIONS: Final = _schema(
    ("partition", pa.int32()),
    *((name, pa.from_numpy_dtype(NARROW.get(name, np.int64))) for name in STORED),
    *((name, _EACH) for name in RECORDS),
)
"""One row per operation, -1 for an unknown cell; in a bucket the rows of a partition are in completion order."""
PARTITIONS: Final = _schema(
    ("number", pa.int32()), ("key", pa.string()), ("rows", pa.int64()), ("records", pa.int64()),
    ("former", pa.string()), ("deleted", pa.int64()),
)  # fmt: skip
"""In order of `number`. `former` is the partition of the same name deleted at event `deleted`; "" if none."""
TRANSACTIONS: Final = _schema(("name", pa.string()), ("fate", pa.int8()), ("ended", pa.int64()))
"""In order of the transaction number."""
TEXTS: Final = _schema(("text", pa.string()))
"""Texts of values that are not small integers; row i has the value number -2 - i."""
STEPS: Final = _schema(
    ("f", pa.string()), ("invoked", pa.int64()), ("returned", pa.int64()), ("process", pa.int64()),
    ("status", pa.int64()), ("subject", pa.string()), ("number", pa.int64()), ("epoch", pa.int64()),
    ("group", pa.string()), ("member", pa.string()), ("node", pa.string()), ("txn", pa.int64()),
    ("position", pa.int64()), ("at_ms", pa.int64()), ("calm_ms", pa.int64()), ("open_ms", pa.int64()),
    ("text", pa.string()),
)  # fmt: skip
FINDINGS: Final = _schema(
    ("place", pa.int64()), ("rule", pa.int64()), ("first", pa.int64()), ("second", pa.int64()), ("offset", pa.int64()),
    ("weight", pa.int64()),
)  # fmt: skip
"""Findings in one partition: `first` and `second` are row numbers, `place` numbers the `RuleFindings`."""

# Increasing numbers are stored as differences and small sets by dictionary: about 6 bytes per operation.
ASCENDING: Final = ("invoked", "returned", "offset", "value", "position", "high_watermark", "last_stable_offset",
                    "txn", "sequence", "timestamp_ms", "at_ms", "calm_ms")  # fmt: skip
WRITING: Final[dict[str, Any]] = {
    "compression": "lz4",
    "use_dictionary": [name for name in OPERATIONS.names if name not in ASCENDING + RECORDS],
    "column_encoding": dict.fromkeys(
        (*ASCENDING, *(f"{name}.list.element" for name in RECORDS)), "DELTA_BINARY_PACKED"
    ),
}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The last file to be written: a folder without it is not a dataset. `source` is (path, bytes, mtime in ns)."""

    version: int = VERSION
    source: tuple[str, int, int]
    format: str
    config: Config
    quarantine: Quarantine
    operations: int
    inventory: Inventory
    faults: list[Event]
