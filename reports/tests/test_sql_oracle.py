"""NumPy and Spark SQL name the same culprits, row by row, in random histories and in what was planted."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from highwater.errors import UsageError
from highwater.reports.columns import Operations
from highwater.reports.dataset.reader import read_dataset
from highwater.reports.rules.findings import Promise
from highwater.reports.synth.plants import PLANTS, SETTINGS
from highwater.reports.synth.write import synth_dataset
from highwater.reports.tests.random_ops import random_operations
from highwater.reports.tests.sql.oracle import RULES, kernel_findings, sql_findings

RANDOM = 400
PLANTED = [{rule: 2 for rule in PLANTS if rule not in SETTINGS}, *({rule: 2} for rule in SETTINGS)]

SMALL = (
    ("spark.sql.shuffle.partitions", "1"),
    ("spark.sql.adaptive.enabled", "false"),
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1"),
)
"""Large plans over few rows: compiling them takes twice the time of all else."""


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from highwater.reports.execution.spark_session import spark_session

    try:
        session = spark_session(conf=SMALL)
    except UsageError as error:
        pytest.skip(f"no Spark here: {error}")
    yield session
    session.stop()


def planted(folder: Path, rules: dict[int, int]) -> Iterator[tuple[Operations, Promise]]:
    synth_dataset(folder, operations=2_000, seed=11, planted=rules)
    history = read_dataset(folder)
    for _, ops in history.partitions.items():
        yield ops, Promise.of(history.config)


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_numpy_and_sql_find_the_same_rows(session: Any, tmp_path: Path) -> None:
    histories = [each for n, rules in enumerate(PLANTED) for each in planted(tmp_path / f"planted {n}", rules)]
    histories += [random_operations(random.Random(seed)) for seed in range(RANDOM)]
    table = tmp_path / "table"
    table.mkdir()
    kernel, sql = kernel_findings(histories), sql_findings(session, table, histories)
    assert {found.rule for found in kernel} == RULES
    assert (kernel - sql, sql - kernel) == (Counter(), Counter())
