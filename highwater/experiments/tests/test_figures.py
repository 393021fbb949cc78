"""The histories whose audit is measured are valid: else a measurement ends with an error, or measures less."""

from pathlib import Path

import pytest

from highwater.errors import Verdict
from highwater.experiments.figures.audits import read_once, simple_log, skewed, write_dataset
from highwater.reports.audit import audit


@pytest.mark.parametrize("partitions", [1, 16])
def test_the_log_that_porcupine_checks_is_valid(tmp_path: Path, partitions: int) -> None:
    parts = {f"t-{number}": read_once(simple_log(2_000 // partitions)) for number in range(partitions)}
    write_dataset(tmp_path / "log", [parts], sum(map(len, parts.values())))
    assert audit(tmp_path / "log").verdict is Verdict.VALID


def test_a_skewed_log_is_valid(tmp_path: Path) -> None:
    skewed(tmp_path / "log", 10_000)
    assert audit(tmp_path / "log").verdict is Verdict.VALID
