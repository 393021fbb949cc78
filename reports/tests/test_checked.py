"""An interrupted audit resumes with the unchecked partitions and ends with the same findings."""

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
    """An engine whose first pass is interrupted after `after` partitions; it records which were requested."""

    def __init__(self, after: int | None = None) -> None:
        self.after, self.requested = after, list[str]()

    def map_partitions(
        self, history: Ingested, work: Any, keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, Any]]:
        found = SameProcess().map_partitions(history, work, keys)
        if not isinstance(work, checked.CheckpointedPass):
            return found
        self.requested = list(keys or ())
        return self._some(found)

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
    """Interrupt an audit and return the files of the partitions checked before."""
    with pytest.raises(KeyboardInterrupt):
        audit(dataset, engine=Interrupted(after=DONE))
    return sorted(dataset.glob("checked-*/*"))


def test_a_resumed_audit_checks_only_remaining_partitions(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = audit(dataset, engine=SameProcess())
    assert {finding.rule: finding.count for finding in whole.findings} == PLANTED
    before = set(dataset.iterdir())
    assert len(interrupt(dataset)) == DONE
    capsys.readouterr()
    rest = Interrupted()
    assert audit(dataset, engine=rest) == whole
    printed = capsys.readouterr().err
    assert printed == f"resuming: {DONE} of {DONE + len(rest.requested)} partitions were checked before\n"
    assert set(dataset.iterdir()) == before


def test_the_partition_of_a_damaged_file_is_checked_again(dataset: Path) -> None:
    interrupt(dataset)[0].write_bytes(b"PAR1")
    rest = Interrupted()
    audit(dataset, engine=rest)
    whole = Interrupted()
    audit(dataset, engine=whole)
    assert len(whole.requested) - len(rest.requested) == DONE - 1


def test_findings_under_another_configuration_are_not_reused(dataset: Path) -> None:
    interrupt(dataset)
    other = Interrupted()
    assert audit(dataset, overrides={"acks": "1"}, engine=other) == audit(
        dataset, overrides={"acks": "1"}, engine=SameProcess()
    )
    whole = Interrupted()
    audit(dataset, overrides={"acks": "0"}, engine=whole)
    assert other.requested == whole.requested
