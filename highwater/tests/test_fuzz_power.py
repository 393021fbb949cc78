"""The judge `fuzzer`: a mutant is planted in a copy, and what the control shows counts for none."""

from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.fuzz.wire.oracles.responses import Oracle
from highwater.mutants.mutation import source_of
from highwater.mutants.node import node_with
from highwater.mutants.table import WIRE, NamedMutant, planted, rows, wire_rows, written
from highwater.power import fuzzer
from highwater.power.fuzzer import FuzzerJudge, Reported, plant
from highwater.power.trial import Outcome, Trial, run_trials
from highwater.reference import metadata
from highwater.soak.compiled.build import copy_sources

SECONDS = 20


def requests(name: str) -> NamedMutant:
    return next(mutant for mutant in written("requests") if mutant.name == name)


def test_a_mutant_is_planted_in_the_copy_only(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    mutant = requests("topic-name-of-any-length")
    plant(tmp_path, mutant)
    assert (tmp_path / "highwater" / "reference" / "topics.py").read_text() == mutant.mutant.source
    assert source_of(mutant.mutant.module) != mutant.mutant.source
    with pytest.raises(UsageError, match="the copy has no module"):
        plant(tmp_path / "elsewhere", mutant)


def test_a_node_has_all_rows_that_it_is_asked_for() -> None:
    names = ["AcksUnchecked", "NoPartitions", "MetadataLeak"]
    produce, cache = planted(wire_rows(names))
    assert (produce.module, cache.module) == ("highwater.reference.replication.produce", metadata.__name__)
    assert "range(-1 << 15, 1 << 15)" in produce.source
    assert "produce.go:54" in produce.source
    with pytest.raises(UsageError, match="NoSuchDefect"):
        node_with([*names, "NoSuchDefect"])


def test_each_defect_of_the_self_test_names_its_oracle_and_where_it_was_seen() -> None:
    assert all(row.kind in set(Oracle) and row.bug for row in rows(WIRE).values())


def test_what_the_control_shows_counts_for_no_mutant() -> None:
    control = Reported(["refuse-DescribeAcls-v1-1: accepted"], [])
    run = Reported(["refuse-DescribeAcls-v3-2: accepted", "alive-Fetch-v4-1: silent"], ["not examined: stall"])
    assert run.besides(control) == ["alive-Fetch-v4-1: silent"]


def test_a_control_that_is_not_clean_judges_no_mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzer, "copy_sources", lambda _: None)
    monkeypatch.setattr(FuzzerJudge, "_fuzz", lambda *_: Reported([], ["not examined: stall"]))
    with pytest.raises(UsageError, match="correct broker is not clean"):
        FuzzerJudge(folder=tmp_path).session(lambda: None)


@pytest.mark.long
def test_a_wrong_broker_is_found_and_the_correct_one_is_not(tmp_path: Path) -> None:
    judge, trials = FuzzerJudge(SECONDS, tmp_path), list[Trial]()
    mutant = requests("one-result-for-all-acls")
    judge.session(lambda: trials.extend(run_trials(judge, [mutant], judge.plan, limit_s=600, jobs=1)))
    assert [trial.outcome for trial in trials] == [Outcome.KILLED]
