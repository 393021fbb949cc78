"""What an audit found so far, kept in the dataset while it goes on: one that was interrupted goes on where it was.

A file for each partition, written by whoever checked it. They count only for the same rules, version and promise.
"""

import hashlib
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from highwater.reports.dataset.reader import Partitions
from highwater.reports.dataset.schema import FINDINGS
from highwater.reports.rules.division import FirstLook, Look, Slices
from highwater.reports.rules.findings import Found, Promise
from highwater.reports.rules.run import Over
from highwater.reports.rules.view import View
from highwater.results import progress

if TYPE_CHECKING:
    from highwater.reports.execution.partitions import Engine
    from highwater.reports.ingest.history import Ingested

KEPT_FROM_ROWS: Final = 1_000_000
"""Of a history: what takes less than seconds is begun anew."""
RULES: Final = Path(__file__).parents[1] / "rules"
COLUMNS: Final = ("first", "second", "offset")
T = TypeVar("T")


class Keeping(FirstLook):
    """The first look at a partition, by a worker, which leaves a file of what it found."""

    def __init__(self, place: Path, numbers: dict[str, int]) -> None:
        self._place, self._numbers = place, numbers

    def __call__(self, key: str, view: View) -> list[Found]:
        return self._keep(key, super().__call__(key, view))

    def divided(self, key: str, slices: Slices, each: Any) -> list[Found]:
        return self._keep(key, super().divided(key, slices, each))

    def _keep(self, key: str, found: list[Found]) -> list[Found]:
        path = self._file(key)
        hidden = path.with_name(f".{path.name}")
        try:
            self._place.mkdir(exist_ok=True)
            pq.write_table(_table(found), hidden)
            hidden.replace(path)
        except OSError:  # whoever may not write there begins anew after an interruption
            hidden.unlink(missing_ok=True)
        return found

    def known(self) -> dict[str, list[Found]]:
        """Of the partitions that were checked already."""
        return {key: found for key in self._numbers if (found := _read(self._file(key))) is not None}

    def _file(self, key: str) -> Path:
        return self._place / f"{self._numbers[key]}.parquet"


def _table(found: list[Found]) -> pa.Table:
    sizes = [len(each.first) for each in found]
    told = {
        "place": np.repeat(np.arange(len(found)), sizes),
        "rule": np.repeat([each.rule for each in found], sizes),
        "information": np.repeat([each.information for each in found], sizes).astype(bool),
    } | {name: np.concatenate([*(getattr(each, name) for each in found), []]) for name in COLUMNS}
    return pa.table({name: pa.array(told[name], FINDINGS.field(name).type) for name in FINDINGS.names}, schema=FINDINGS)


def _read(path: Path) -> list[Found] | None:
    """Nothing if it is not there, or is not whole."""
    try:
        table = pq.read_table(path, schema=FINDINGS)
    except (OSError, pa.ArrowException):
        return None
    place, rule, information, first, second, offset = (
        table[name].to_numpy() for name in ("place", "rule", "information", *COLUMNS)
    )
    starts = np.append(np.flatnonzero(np.diff(place, prepend=-1)), len(place)).tolist()
    return [
        Found(int(rule[start]), first[start:end], second[start:end], offset[start:end], bool(information[start]))
        for start, end in pairwise(starts)
    ]


def _digest(promise: Promise) -> str:
    """Of what decides on the findings, but for the history."""
    told = hashlib.sha256(repr(promise).encode())
    for path in sorted(RULES.glob("*.py")):
        told.update(path.read_bytes())
    return told.hexdigest()[:16]


@contextmanager
def going_on(engine: "Engine", history: "Ingested") -> Iterator[Over]:
    """What an engine does, in the order of the keys; of a first look only what was not done, if that is much."""
    promise, partitions = Promise.of(history.config), history.partitions
    if not isinstance(partitions, Partitions) or history.rows < KEPT_FROM_ROWS:
        yield _sorted(engine, history)
        return
    place = partitions.folder / f"checked-{_digest(promise)}"
    keeping = Keeping(place, {key: part.number for key, part in partitions.parts.items()})

    def over(work: Any, keys: Collection[str] | None = None) -> Iterable[tuple[str, Any]]:
        if not isinstance(work, FirstLook):
            return _sorted(engine, history)(work, keys)
        return _looked(engine, history, keeping)

    yield over
    shutil.rmtree(place, ignore_errors=True)


def _sorted(engine: "Engine", history: "Ingested") -> Over:
    def over(work: Look[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        return sorted(engine.over(history, work, keys), key=lambda pair: pair[0])

    return over


def _looked(engine: "Engine", history: "Ingested", keeping: Keeping) -> list[tuple[str, list[Found]]]:
    found = keeping.known()
    left = [key for key in history.partitions if key not in found]
    if found:
        told = f"going on: {len(found):,} of {len(found) + len(left):,} partitions were checked before"
        print(told, file=sys.stderr)
    with progress("partitions", len(left)) as advance:
        for key, mine in engine.over(history, keeping, left):
            found[key] = mine
            advance()
    return sorted(found.items())
