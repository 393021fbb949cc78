"""The power of the checks: the table of mutants, the frame of a trial, the store, and samples that are still killed."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.mutants.mutation import source_of, unchanged
from highwater.mutants.table import NamedMutant, is_outside_of_functions, sets, statement_at, written
from highwater.power import trial as frame
from highwater.power.generated import generated
from highwater.power.lines import CaseLines, LinesFile, without_repetitions
from highwater.power.reasons import equivalents, survivors
from highwater.power.simulator import SimulatorJudge
from highwater.power.store import Killer, Store, read_killers, record_killers, score_text
from highwater.power.trial import Outcome, Trial, run_trials

SAMPLE = (
    "fetch-newer-leader-epoch-accepted",
    "list-offsets-strictly-after-timestamp",
    "list-offsets-max-timestamp-is-last-record",
    "producer-remembers-one-batch",
    "new-epoch-keeps-old-batches",
    "older-generation-accepted",
    "leave-removes-first-member-only",
    "second-offset-commit-replaces-first",
    "repeated-init-bumps-again",
    "verification-by-topic",
    "create-topics-validate-only-creates",
    "alter-configs-keeps-others",
)
"""Mutants of each part of the broker whose killers take a fraction of a second."""
SOURCE = """\
def f(
    a: int,
) -> int:
    if a > 1 and (
        a < 5
    ):
        return g(
            a
        )
    return 2
"""


# -- the table ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sets())
def test_every_written_mutant_changes_its_module(name: str) -> None:
    found = written(name)
    assert len({mutant.name for mutant in found}) == len(found) >= 15
    assert all(mutant.mutant.source != source_of(mutant.mutant.module) and mutant.effect for mutant in found)


def test_a_mutant_with_the_name_of_another_set_is_the_same_one() -> None:
    keys: dict[str, str] = {}
    for mutant in (mutant for name in sets() for mutant in written(name)):
        assert keys.setdefault(mutant.name, mutant.key) == mutant.key, mutant.name


def test_every_written_mutant_has_a_killer_or_a_reason() -> None:
    """Update the lists with `python -m highwater.power --record`."""
    judge, names = "suite", {mutant.name for mutant in written()}
    killed = names & set(read_killers(judge))
    excused = [known.name for known in (*equivalents(), *survivors(judge)) if known.name]
    assert killed.isdisjoint(excused), sorted(killed.intersection(excused))
    assert sorted([*killed, *excused]) == sorted(names)


def test_the_same_seed_generates_the_same_mutants() -> None:
    first, again, other = ([mutant.key for mutant in islice(generated(1, seed), 2)] for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 2


@pytest.mark.parametrize(
    ("line", "lines"), [(2, range(1, 4)), (5, range(4, 7)), (8, range(7, 10)), (10, range(10, 11))]
)
def test_the_lines_of_a_statement(line: int, lines: range) -> None:
    assert statement_at(SOURCE, line) == lines
    assert is_outside_of_functions(SOURCE, line) == (line < 4)


def test_a_written_mutant_that_is_not_in_its_file_is_an_error(tmp_path: Path) -> None:
    row = '[[mutant]]\nname = "m"\nfile = "reference/broker.py"\nold = "no such text"\nnew = ""\neffect = "e"\n'
    (tmp_path / "some.toml").write_text(row)
    with pytest.raises(UsageError, match="occurs 0 times"):
        written("some", tmp_path)
    with pytest.raises(UsageError, match="no set of mutants 'other'"):
        written("other", tmp_path)


# -- which case executes what ---------------------------------------------------------------------------


def test_cases_that_do_not_execute_the_line_are_not_run() -> None:
    file = LinesFile()
    file.add("A", CaseLines("", 0.1, is_passed=True), {"m": frozenset({1, 2})})
    file.add("B", CaseLines("", 0.1, is_passed=True), {"m": frozenset({2})})
    file.add("C", CaseLines("", 0.1, is_passed=True), {"n": frozenset({1})})
    assert file.may_notice("m", [1], at_import=False).keys() == {"A"}
    assert file.may_notice("m", [2, 3], at_import=False).keys() == {"A", "B"}
    assert file.may_notice("m", [3], at_import=False) == {}
    assert file.may_notice("m", [9], at_import=True).keys() == {"A", "B"}, "a constant concerns all that use the module"


def test_of_cases_that_execute_the_same_lines_one_is_run() -> None:
    cases = {"v1": ("test_a", 1), "v2": ("test_a", 1), "v3": ("test_a", 2), "other": ("test_b", 1)}
    assert without_repetitions(cases) == ["v2", "v3", "other"]


# -- the frame ------------------------------------------------------------------------------------------


class PretendJudge(frame.Judge):
    """Checks that are functions; each runs in a fork that has loaded the mutant."""

    name = "pretend"

    def __init__(self, checks: dict[str, Callable[[], str]]) -> None:
        self._checks = checks

    def version(self) -> str:
        return "1"

    def plan(self, mutant: NamedMutant) -> list[str]:
        return list(self._checks)

    def reloaded(self, module: str) -> set[str]:
        return {"highwater.names"}

    def begin(self, mutant: NamedMutant) -> None:
        pass

    def check(self, name: str) -> str:
        return self._checks[name]()

    def limit_s(self, name: str) -> float:
        return 20 if name == "slow" else 2


def finds_a_near_name() -> str:
    from highwater.names import unknown_name

    return "" if "Fence" in str(unknown_name("guard", "Fenc", ["Fence", "Isr"], "--list").hint) else "no hint"


def passes() -> str:
    return ""


def loops() -> str:
    while True:
        pass


def ends_the_process() -> str:
    os.kill(os.getpid(), 9)
    return ""


def with_first_line(line: str) -> NamedMutant:
    control = unchanged("highwater.names")
    return NamedMutant(replace(control, source=f"{line}\n{control.source}") if line else control, "a")


def try_one(judge: frame.Judge, mutant: NamedMutant, limit_s: float = 10.0) -> Trial:
    (found,) = run_trials(judge, [mutant], judge.plan, limit_s, jobs=1)
    return found


@pytest.mark.parametrize(
    ("line", "outcome", "killer", "message"),
    [
        ("", Outcome.SURVIVED, "", ""),
        ("1 / 0", Outcome.KILLED, "hint", "ZeroDivisionError: division by zero"),
        ("unknown_name = lambda *_: None", Outcome.SURVIVED, "", ""),  # defined again below
    ],
    ids=["unchanged", "raises", "no effect"],
)
def test_the_outcome_of_a_mutant(line: str, outcome: Outcome, killer: str, message: str) -> None:
    judge = PretendJudge({"passes": passes, "hint": finds_a_near_name})
    found = try_one(judge, with_first_line(line))
    assert (found.outcome, found.killer, found.message) == (outcome, killer, message)
    assert finds_a_near_name() == "", "this process has the module as it is"


def test_a_check_that_fails_on_the_correct_broker_judges_no_mutant() -> None:
    with pytest.raises(UsageError, match="found to be wrong, too, by always: wrong"):
        try_one(PretendJudge({"always": lambda: "wrong"}), with_first_line(""))


@pytest.mark.parametrize(
    ("check", "message"),
    [(loops, "does not end within 2 s of processor time"), (ends_the_process, "the process ended with signal 9")],
)
def test_a_broker_that_does_not_end_is_killed(
    check: Callable[[], str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "prove", lambda *_: None)
    found = try_one(PretendJudge({"passes": passes, "check": check}), with_first_line(""))
    assert (found.outcome, found.killer, found.message) == (Outcome.KILLED, "check", message)


def test_a_trial_ends_with_its_processor_time() -> None:
    found = try_one(PretendJudge({"passes": passes, "slow": loops}), with_first_line(""), limit_s=1.5)
    assert (found.outcome, found.killer) == (Outcome.UNFINISHED, "")
    assert found.cpu_s < 4


def test_a_mutant_that_no_check_reaches_is_not_run() -> None:
    assert try_one(PretendJudge({}), with_first_line("1 / 0")).outcome is Outcome.NOT_REACHED


# -- the store ------------------------------------------------------------------------------------------


def trial(name: str, outcome: Outcome, killer: str = "") -> Trial:
    return Trial(
        judge="suite", version="s", key=name, name=name, module="m", line=1, before="", after="", effect="",
        outcome=outcome, killer=killer, limit_s=60,
    )  # fmt: skip


def test_a_run_continues_with_what_was_not_finished(tmp_path: Path) -> None:
    for outcome in (Outcome.KILLED, Outcome.SURVIVED, Outcome.UNFINISHED):
        Store("suite", tmp_path).add(trial(outcome.name, outcome))
    again = Store("suite", tmp_path)
    assert again.known("KILLED", "s", 60)
    assert again.known("SURVIVED", "s", 60)
    assert again.known("UNFINISHED", "s", 60)
    assert again.known("UNFINISHED", "s", 61) is None
    assert again.known("KILLED", "another suite", 60) is None
    assert "1 of 3 mutants were killed" in score_text(again.trials)
    again.leave_out()
    assert again.known("KILLED", "s", 60) is None
    assert Store("simulator", tmp_path).trials == []


def test_a_killer_is_recorded_and_a_survivor_loses_its_own(tmp_path: Path) -> None:
    path = tmp_path / "killers.json"
    record_killers("suite", [trial("a", Outcome.KILLED, "PRD-1"), trial("b", Outcome.KILLED, "PRD-2")], path)
    record_killers("simulator", [trial("a", Outcome.KILLED, "seed 1")], path)
    record_killers("suite", [trial("a", Outcome.SURVIVED)], path)
    assert read_killers("suite", path) == {"b": Killer("PRD-2")}
    assert read_killers("simulator", path) == {"a": Killer("seed 1")}


# -- samples --------------------------------------------------------------------------------------------


def run_recorded(folder: Path, judge: str, *names: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "highwater.power", *names, "--judge", judge, "--recorded"]
    command += ["--results", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_plan_of_the_simulator_has_seeds_and_the_machines_of_the_package() -> None:
    mutant = next(each for each in written() if each.mutant.module.startswith("highwater.reference.storage."))
    plan = list(islice(SimulatorJudge().plan(mutant), 30))
    assert plan[:2] == ["seed 0", "seed 1"]
    assert "machine log" in plan


@pytest.mark.long
def test_a_sample_of_the_mutants_is_killed_by_the_suite(tmp_path: Path) -> None:
    ended = run_recorded(tmp_path, "suite", *SAMPLE)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(SAMPLE)} of {len(SAMPLE)} mutants were killed" in ended.stdout
