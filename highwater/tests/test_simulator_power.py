"""The simulator's power: a wrong broker is found, the correct one is not, and a seed that finds both judges none."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.fuzz.simulator import cluster
from highwater.fuzz.simulator.cluster import Settings
from highwater.soak import simulator_power
from highwater.soak.mutation import unchanged
from highwater.soak.power.mutants import equivalents, written
from highwater.soak.simulator_power import read_kills, read_survivors

FOUND = "produce-waits-for-its-first-offset"
SAMPLE = (
    "fetch-min-bytes-as-one",
    "list-offsets-strictly-after-timestamp",
    "producer-remembers-one-batch",
    "older-generation-accepted",
    "repeated-end-with-other-outcome",
    "create-topics-validate-only-creates",
)
"""Mutants of each part of the broker that a run without faults finds within seconds."""


@pytest.mark.soak
def test_a_wrong_broker_is_found_and_the_correct_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_power, "FOLDER", tmp_path)
    (mutant,) = (each for each in written() if each.name == FOUND)
    trial = simulator_power._try_mutant(mutant, simulator="now", cpu_s=5)
    assert trial.by.startswith("calm 0: CommittedOnEligible")
    place = tmp_path / "correct.json"
    simulator_power._judge(unchanged(mutant.mutant.module), "correct", place, cpu_s=5, machines=(), seeds=range(1))
    correct = msgspec.json.decode(place.read_bytes(), type=simulator_power.Trial)
    assert correct.by == ""
    assert correct.seeds >= 1


def test_a_seed_that_finds_the_correct_broker_judges_no_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    check = simulator_power._check_run.__wrapped__  # not what an earlier call returned
    check("calm 0")
    monkeypatch.setattr(cluster, "Settings", partial(Settings, guards_off=("AckAfterCommit",)))
    with pytest.raises(UsageError, match=r"found to be wrong by calm 0, too: CommittedOnEligible"):
        check("calm 0")


def test_every_written_mutant_is_found_or_has_a_reason() -> None:
    """Update the records with `python -m highwater.soak.simulator_power --mutants 0 --record`."""
    found, excused = set(read_kills()), [survivor.name for survivor in read_survivors()]
    equivalent = {known.name for known in equivalents() if known.name}
    assert found.isdisjoint(excused), sorted(found.intersection(excused))
    assert sorted([*found, *excused]) == sorted({mutant.name for mutant in written()} - equivalent)
    assert all(survivor.reason for survivor in read_survivors())


@pytest.mark.soak
def test_a_sample_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_power, "FOLDER", tmp_path)
    chosen = [mutant for mutant in written() if mutant.name in SAMPLE]
    assert len(chosen) == len(SAMPLE)
    trials = [simulator_power._try_mutant(mutant, simulator="now", cpu_s=20) for mutant in chosen]
    assert [trial.name for trial in trials if not trial.by] == []
