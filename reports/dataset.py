"""A history that was read once: a folder with one Parquet bucket for each partition, and the rest beside it."""

from pathlib import Path
from typing import Any

import msgspec

from reports.columns import Status, read_bucket, write_bucket
from reports.importers.quarantine import Quarantine
from reports.ingest.builder import Values
from reports.ingest.history import Ingested
from reports.tables import Step, Tables, Transactions
from spec.formats.history import Config, Event
from spec.formats.run import write_json
from spec.formats.verdict import UsageError

MANIFEST = "dataset.json"
TRANSACTIONS = ("names", "fate", "ended", "begun")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`buckets` are the partitions of `0.parquet`, `1.parquet` and so on; `steps` the tables of the run."""

    config: Config
    format: str
    quarantine: Quarantine
    buckets: list[str]
    operations: int
    faults: list[Event]
    texts: list[str]
    transactions: dict[str, list[Any]]
    steps: dict[str, list[list[Any]]]


def write_dataset(folder: Path, history: Ingested) -> None:
    """The manifest comes last: a folder without one is none."""
    transactions = history.tables.transactions
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, operations in enumerate(history.partitions.values()):
            write_bucket(folder / f"{number}.parquet", operations)
        manifest = Manifest(
            config=history.config,
            format=history.format,
            quarantine=history.quarantine,
            buckets=list(history.partitions),
            operations=history.operations,
            faults=history.faults,
            texts=history.values.texts,
            transactions={name: getattr(transactions, name) for name in TRANSACTIONS},
            steps={name: [list(step) for step in steps] for name, steps in history.tables.steps.items()},
        )
        write_json(folder / MANIFEST, manifest)
    except OSError as error:
        mend = "free disk space or write elsewhere"
        raise UsageError(f"cannot write ({error.strerror})", where=str(folder), mend=mend) from error


def read_dataset(folder: Path) -> Ingested:
    """UsageError for a folder that is none."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        buckets = {key: read_bucket(folder / f"{number}.parquet") for number, key in enumerate(manifest.buckets)}
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not a dataset: {error}", where=str(folder), mend="see highwater synth --out DIR") from error
    steps = {name: [_step(row) for row in rows] for name, rows in manifest.steps.items()}
    return Ingested(
        manifest.config,
        buckets,
        Tables(Transactions(*(manifest.transactions[name] for name in TRANSACTIONS)), steps),
        Values(manifest.texts),
        manifest.faults,
        manifest.operations,
        manifest.format,
        manifest.quarantine,
    )


def _step(row: list[Any]) -> Step:
    step = Step(*row)
    return step._replace(status=Status(step.status))
