"""An audit that was interrupted goes on where it was, and ends with the same findings."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from highwater.reports.audit import audit
from highwater.reports.execution import checkpoints as checked
from highwater.reports.execution.partitions import SameProcess
from highwater.reports.ingest.history import Ingested
from highwater.reports.synth.write import synth_dataset

DONE = 7
PLANTED = {1: 1, 14: 1, 16: 1, 20: 1, 21: 1, 36: 1}
T = TypeVar("T")


class Interrupted:
    """An engine that somebody stops after so many partitions, and that notes which it was asked for."""

    def __init__(self, after: int | None = None) -> None:
        self.after, self.asked = after, list[str]()

    def map_partitions(
        self, history: Ingested, work: Any, keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, Any]]:
        if isinstance(work, checked.CheckpointedPass):
            self.asked = list(keys or ())
        return self._some(SameProcess().map_partitions(history, work, keys))

    def _some(self, found: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
        yield from islice(found, self.after)
        if self.after is not None:
            raise KeyboardInterrupt


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checked, "CHECKPOINT_FROM_ROWS", 0)
    synth_dataset(tmp_path / "dataset", operations=200, seed=3, planted=PLANTED)
    return tmp_path / "dataset"


def interrupt(dataset: Path) -> list[Path]:
    """The files of what was checked until then."""
    with pytest.raises(KeyboardInterrupt):
        audit(dataset, engine=Interrupted(after=DONE))
    return sorted(dataset.glob("checked-*/*"))


def test_only_what_was_not_done_is_checked(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = audit(dataset, engine=SameProcess())
    assert {finding.rule: finding.count for finding in whole.findings} == PLANTED
    before = set(dataset.iterdir())
    assert len(interrupt(dataset)) == DONE
    capsys.readouterr()
    rest = Interrupted()
    assert audit(dataset, engine=rest) == whole
    told = capsys.readouterr().err
    assert told == f"resuming: {DONE} of {DONE + len(rest.asked)} partitions were checked before\n"
    assert set(dataset.iterdir()) == before


def test_a_file_that_is_damaged_is_not_believed(dataset: Path) -> None:
    interrupt(dataset)[0].write_bytes(b"PAR1")
    rest = Interrupted()
    audit(dataset, engine=rest)
    whole = Interrupted()
    audit(dataset, engine=whole)
    assert len(whole.asked) - len(rest.asked) == DONE - 1


def test_what_was_found_under_another_promise_does_not_count(dataset: Path) -> None:
    interrupt(dataset)
    other = Interrupted()
    assert audit(dataset, overrides={"acks": "1"}, engine=other) == audit(
        dataset, overrides={"acks": "1"}, engine=SameProcess()
    )
    whole = Interrupted()
    audit(dataset, overrides={"acks": "0"}, engine=whole)
    assert other.asked == whole.asked
