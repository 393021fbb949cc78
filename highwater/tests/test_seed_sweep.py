"""A sweep over seeds: equal rows locally, on Spark and for any hash seed; no seed is run twice."""

from pathlib import Path

import pytest

from highwater.commands.seed_sweep import read_rows, row_of, settings_of_sweep, sweep
from highwater.errors import UsageError
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.search import sweep_parallel
from highwater.reports.execution.spark_session import MASTER
from highwater.soak.seed_recheck import hashes_elsewhere

QUICK = Settings(swarm=True)
SEEDS = range(4)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep")
    sweep(SEEDS, QUICK, out, jobs=1, quiet=True, chunk=2)
    return out


@pytest.mark.soak
def test_the_summary_equals_that_of_a_search_over_the_seeds(swept: Path) -> None:
    found = sweep_parallel(SEEDS, QUICK, jobs=1)
    summary = sweep(SEEDS, QUICK, swept, quiet=True)
    assert (summary["seeds"], summary["events"], summary["seen"]) == (len(SEEDS), found.events, found.coverage())
    assert summary["findings"] == []


@pytest.mark.soak
@pytest.mark.xdist_group("spark")  # one session for a process: another test may have opened it
def test_spark_computes_the_same_rows_and_only_missing_ones(swept: Path, tmp_path: Path) -> None:
    sweep(range(1, 3), QUICK, tmp_path, jobs=1, quiet=True)
    (before,) = tmp_path.glob("*.parquet")
    written = before.stat().st_mtime_ns
    summary = sweep(SEEDS, QUICK, tmp_path, master=MASTER, quiet=True, chunk=1)
    assert before.stat().st_mtime_ns == written
    here, there = ({row["seed"]: {**row, "worker": ""} for row in read_rows(out)} for out in (swept, tmp_path))
    assert here == there
    assert sorted(here) == list(SEEDS)
    assert summary == sweep(SEEDS, QUICK, swept, quiet=True)


@pytest.mark.soak
def test_a_seed_is_the_same_run_under_another_hash_seed(swept: Path) -> None:
    known = {row["seed"]: row["trace_hash"] for row in read_rows(swept, ["seed", "trace_hash"])}
    again = [hashes_elsewhere([0, 3], swept, hash_seed) for hash_seed in (1, 2)]
    assert again == [{0: known[0], 3: known[3]}] * 2
    assert len(set(known.values())) == len(SEEDS)


def test_a_violation_has_the_command_that_reproduces_it() -> None:
    row = row_of(0, Settings(swarm=True, guards_off=("AckAfterCommit",)))
    assert (row["verdict"], row["invariant"]) == ("violated", "CommittedOnEligible")
    assert row["replay"] == "highwater simulate --seeds 0:1 --guard-off AckAfterCommit"


@pytest.mark.soak
def test_a_folder_with_other_settings_is_refused(swept: Path, tmp_path: Path) -> None:
    assert settings_of_sweep(swept) == QUICK
    with pytest.raises(UsageError, match=r"run with other settings, .*; give another --out"):
        sweep(SEEDS, Settings(swarm=True, min_insync_replicas=1), swept, quiet=True)
    (tmp_path / "sweep.json").write_bytes((swept / "sweep.json").read_bytes().replace(b'"code":"', b'"code":"other'))
    with pytest.raises(UsageError, match="another version of the code"):
        sweep(SEEDS, QUICK, tmp_path, quiet=True)
    (tmp_path / "sweep.json").unlink()
    with pytest.raises(UsageError, match="not the folder of a sweep"):
        settings_of_sweep(tmp_path)
