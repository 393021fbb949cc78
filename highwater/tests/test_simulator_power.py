"""The simulator's power: a wrong broker is found, the correct one is not, and a seed that finds both judges none."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.fuzz.simulator.cluster import Settings
from highwater.soak import simulator_power
from highwater.soak.mutation import unchanged
from highwater.soak.power.mutants import written

FOUND = "produce-waits-for-its-first-offset"


def test_a_wrong_broker_is_found_and_the_correct_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_power, "FOLDER", tmp_path)
    (mutant,) = (each for each in written() if each.name == FOUND)
    trial = simulator_power._try_mutant(mutant, simulator="now", cpu_s=5)
    assert trial.by.startswith("seed 0: CommittedOnEligible")
    place = tmp_path / "correct.json"
    simulator_power._judge(unchanged(mutant.mutant.module), "correct", place, cpu_s=5, machines=(), seeds=1)
    correct = msgspec.json.decode(place.read_bytes(), type=simulator_power.Trial)
    assert (correct.by, correct.seeds) == ("", 1)


def test_a_seed_that_finds_the_correct_broker_judges_no_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator_power._check_seed(0)
    monkeypatch.setattr(simulator_power, "Settings", partial(Settings, guards_off=("AckAfterCommit",)))
    with pytest.raises(UsageError, match=r"found to be wrong by seed 0, too: CommittedOnEligible"):
        simulator_power._check_seed(0)
