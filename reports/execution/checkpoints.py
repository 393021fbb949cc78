"""Checkpoints of a running audit in its dataset: an interrupted audit resumes with the partitions that are left.

The worker that checked a partition writes one file for it. Files count only for the same rules and settings.
"""

import hashlib
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from highwater.reports.dataset.reader import Partitions
from highwater.reports.dataset.schema import FINDINGS
from highwater.reports.execution.findings import findings_of, findings_table
from highwater.reports.rules.division import FirstPass, PartitionMap, PartitionTask, Slices
from highwater.reports.rules.findings import Promise, RuleFindings
from highwater.reports.rules.view import View
from highwater.results import progress

if TYPE_CHECKING:
    from highwater.reports.execution.partitions import Engine
    from highwater.reports.ingest.history import Ingested

CHECKPOINT_FROM_ROWS: Final = 1_000_000
"""Rows of a history with checkpoints; a smaller one takes a second and is checked again."""
RULES: Final = Path(__file__).parents[1] / "rules"
T = TypeVar("T")


class CheckpointedPass(FirstPass):
    """The first pass over a partition; the worker writes its findings to a checkpoint file."""

    def __init__(self, place: Path, numbers: dict[str, int]) -> None:
        self._place, self._numbers = place, numbers

    def __call__(self, key: str, view: View) -> list[RuleFindings]:
        return self._keep(key, super().__call__(key, view))

    def run_divided(self, key: str, slices: Slices, run_tasks: Any) -> list[RuleFindings]:
        return self._keep(key, super().run_divided(key, slices, run_tasks))

    def _keep(self, key: str, findings: list[RuleFindings]) -> list[RuleFindings]:
        path = self._file(key)
        hidden = path.with_name(f".{path.name}")
        try:
            self._place.mkdir(exist_ok=True)
            pq.write_table(findings_table(findings), hidden)
            hidden.replace(path)
        except OSError:  # without write access an interrupted audit checks the partition again
            hidden.unlink(missing_ok=True)
        return findings

    def known(self) -> dict[str, list[RuleFindings]]:
        """Return the findings of the partitions that were checked before, by key."""
        return {key: findings for key in self._numbers if (findings := _read(self._file(key))) is not None}

    def _file(self, key: str) -> Path:
        return self._place / f"{self._numbers[key]}.parquet"


def _read(path: Path) -> list[RuleFindings] | None:
    """Return the findings of a checkpoint file; None if it is missing or incomplete."""
    try:
        table = pq.read_table(path, schema=FINDINGS)
    except (OSError, pa.ArrowException):
        return None
    return findings_of(table)


def _digest(promise: Promise) -> str:
    """Return a digest of the settings and of the source text of the rules: 16 hex digits."""
    digest = hashlib.sha256(repr(promise).encode())
    for path in sorted(RULES.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def resume_checkpoints(engine: "Engine", history: "Ingested") -> Iterator[PartitionMap]:
    """Yield the engine as a `PartitionMap` whose first pass skips partitions with a checkpoint.

    Checkpoints are removed on success; histories that are small, in memory or at an address have none.
    """
    promise, partitions = Promise.of(history.config, history.shown_commits), history.partitions
    if not isinstance(partitions, Partitions) or history.rows < CHECKPOINT_FROM_ROWS:
        yield _sorted(engine, history)
        return
    if not isinstance(partitions.folder, Path):  # an object store has no atomic rename
        yield _sorted(engine, history)
        return
    place = partitions.folder / f"checked-{_digest(promise)}"
    keeping = CheckpointedPass(place, {key: part.number for key, part in partitions.parts.items()})

    def map_partitions(work: Any, keys: Collection[str] | None = None) -> Iterable[tuple[str, Any]]:
        if not isinstance(work, FirstPass):
            return _sorted(engine, history)(work, keys)
        return _run_first_pass(engine, history, keeping)

    yield map_partitions
    shutil.rmtree(place, ignore_errors=True)


def _sorted(engine: "Engine", history: "Ingested") -> PartitionMap:
    def map_partitions(work: PartitionTask[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        return sorted(engine.map_partitions(history, work, keys), key=lambda pair: pair[0])

    return map_partitions


def _run_first_pass(
    engine: "Engine", history: "Ingested", keeping: CheckpointedPass
) -> list[tuple[str, list[RuleFindings]]]:
    findings = keeping.known()
    left = [key for key in history.partitions if key not in findings]
    if findings:
        message = f"resuming: {len(findings):,} of {len(findings) + len(left):,} partitions were checked before"
        print(message, file=sys.stderr)
    with progress("partitions", len(left)) as advance:
        for key, mine in engine.map_partitions(history, keeping, left):
            findings[key] = mine
            advance()
    return sorted(findings.items())
