"""The files of a dataset and their columns. What they mean stands in `Operations`, `Step` and docs/audit/dataset.md."""

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from highwater.reports.columns import NARROW, RECORDS, STORED
from highwater.reports.importers.quarantine import Quarantine
from highwater.spec.formats.history import Config, Event

VERSION: Final = 2
MANIFEST: Final = "dataset.json"
BUCKETS: Final = 64


def bucket_of(partition: int) -> int:
    """By the number of a partition, so that a history of many has few files, and one of few a file for each."""
    return partition % BUCKETS


def bucket_file(folder: Path, bucket: int) -> Path:
    return folder / f"bucket-{bucket:02}.parquet"


def _schema(*columns: tuple[str, Any]) -> Any:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


_EACH = pa.list_(pa.field("element", pa.int64(), nullable=False))
OPERATIONS: Final = _schema(
    ("partition", pa.int32()),
    *((name, pa.from_numpy_dtype(NARROW.get(name, np.int64))) for name in STORED),
    *((name, _EACH) for name in RECORDS),
)
"""One row an operation, -1 for what was not told; in each bucket the rows of a partition stand in the order of time."""
PARTITIONS: Final = _schema(
    ("number", pa.int32()), ("key", pa.string()), ("rows", pa.int64()), ("records", pa.int64()),
    ("former", pa.string()), ("deleted", pa.int64()),
)  # fmt: skip
"""Numbered as they come. `former` had the name before and was deleted at event `deleted`; "" for none."""
TRANSACTIONS: Final = _schema(("name", pa.string()), ("fate", pa.int8()), ("ended", pa.int64()))
"""By number."""
TEXTS: Final = _schema(("text", pa.string()))
"""Of values that are no small integers, by number: the first is -2, the next -3."""
STEPS: Final = _schema(
    ("f", pa.string()), ("invoked", pa.int64()), ("returned", pa.int64()), ("process", pa.int64()),
    ("status", pa.int64()), ("subject", pa.string()), ("number", pa.int64()), ("epoch", pa.int64()),
    ("group", pa.string()), ("member", pa.string()), ("node", pa.string()), ("txn", pa.int64()),
    ("position", pa.int64()), ("at_ms", pa.int64()), ("calm_ms", pa.int64()), ("text", pa.string()),
)  # fmt: skip
FINDINGS: Final = _schema(
    ("place", pa.int64()), ("rule", pa.int64()), ("first", pa.int64()), ("second", pa.int64()), ("offset", pa.int64()),
    ("information", pa.bool_()),
)  # fmt: skip
"""What the rules over one partition found; `first` and `second` are rows of it, `place` numbers the `Found`."""

# Numbers that ascend are stored as differences, small sets by dictionary: 6 bytes an operation, and quick to read.
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
    """Written last: a folder without one is no dataset. `source` is what was read: path, bytes, time of change."""

    version: int = VERSION
    source: tuple[str, int, int]
    format: str
    config: Config
    quarantine: Quarantine
    operations: int
    faults: list[Event]
