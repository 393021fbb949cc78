"""The power of the suite: the mutants can be made, a statement has its lines, and a sample is still killed."""

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.soak.mutation import source_of
from highwater.soak.power import mutants
from highwater.soak.power.lines import CaseLines, LinesFile, Tracer, may_notice, without_repetitions
from highwater.soak.power.mutants import equivalents, generated, statement_at, survivors, written
from highwater.soak.power.results import Killer, Outcome, Results, Trial, read_killers, record_killers, score_text

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
"""Mutants that die in a second or two, of each part of the broker."""
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


@pytest.mark.parametrize(
    ("path", "least"),
    [(mutants.WRITTEN, 180), (mutants.FOLDER / "typical.toml", 30), (mutants.FOLDER / "subtle.toml", 20)],
)
def test_every_written_mutant_changes_its_module(path: Path, least: int) -> None:
    found = written(path)
    assert len({mutant.name for mutant in found}) == len(found) >= least
    assert all(mutant.mutant.source != source_of(mutant.mutant.module) and mutant.effect for mutant in found)


def test_every_written_mutant_has_a_killer_or_a_reason() -> None:
    """Update the lists with `python -m highwater.soak.power --mutants 0 --record`."""
    killed, excused = set(read_killers()), [known.name for known in (*equivalents(), *survivors()) if known.name]
    assert killed.isdisjoint(excused), sorted(killed.intersection(excused))
    assert sorted([*killed, *excused]) == sorted({*killed, *(mutant.name for mutant in written())})


def test_the_same_seed_generates_the_same_mutants() -> None:
    first, again, other = ([mutant.key for mutant in islice(generated(1, seed), 2)] for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 2


@pytest.mark.parametrize(
    ("line", "lines"), [(2, range(1, 4)), (5, range(4, 7)), (8, range(7, 10)), (10, range(10, 11))]
)
def test_the_lines_of_a_statement(line: int, lines: range) -> None:
    assert statement_at(SOURCE, line) == lines


def test_a_written_mutant_that_is_not_in_its_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mutants.toml"
    path.write_text(
        '[[mutant]]\nname = "m"\nfile = "reference/broker.py"\nold = "no such text"\nnew = ""\neffect = "e"\n'
    )
    with pytest.raises(UsageError, match="occurs 0 times"):
        mutants.written(path)


def lines_of(**lines: list[int]) -> CaseLines:
    return CaseLines(source="", seconds=0.1, lines=lines)


def test_cases_that_do_not_execute_the_line_are_not_run() -> None:
    file = LinesFile({"A": lines_of(m=[1, 2]), "B": lines_of(m=[2]), "C": lines_of(n=[1])}, start={"m": [9]})
    assert may_notice(file, "m", [1]) == {"A"}
    assert may_notice(file, "m", [2, 3]) == {"A", "B"}
    assert may_notice(file, "m", [3]) == set()
    assert may_notice(file, "m", [9]) == {"A", "B"}, "a constant concerns all that use the module"


def test_lines_that_a_node_did_not_write_are_an_error(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)
    (tmp_path / "1-11.json").write_text('{"A": {"m": [1, 2]}}')
    assert tracer.collect({"1": 11}) == {"A": {"m": [1, 2]}}
    with pytest.raises(UsageError, match="are lost: 2"):
        tracer.collect({"1": 11, "2": 12})


def test_of_cases_that_execute_the_same_lines_one_is_run() -> None:
    same = frozenset({1, 2})
    cases = {
        "v1": ("test_a", same),
        "v2": ("test_a", same),
        "v3": ("test_a", frozenset({1})),
        "other": ("test_b", same),
    }
    assert without_repetitions(cases) == ["v2", "v3", "other"]


def trial(name: str, outcome: Outcome, killer: str = "") -> Trial:
    return Trial(
        key=name, suite="s", name=name, module="m", line=1, before="", after="", effect="", outcome=outcome,
        killer=killer, brokers=1,
    )  # fmt: skip


def test_a_run_continues_with_what_was_not_finished(tmp_path: Path) -> None:
    path = tmp_path / "trials.ndjson"
    for outcome in (Outcome.KILLED, Outcome.SURVIVED, Outcome.UNFINISHED):
        Results(path).add(trial(outcome.name, outcome))
    again = Results(path)
    assert again.known("KILLED", "s")
    assert again.known("SURVIVED", "s")
    assert again.known("UNFINISHED", "s") is None
    assert again.known("KILLED", "another suite") is None
    assert "1 of 3 mutants died" in score_text(again.trials)


def test_a_killer_is_recorded_and_a_survivor_loses_its_own(tmp_path: Path) -> None:
    path = tmp_path / "killers.json"
    record_killers([trial("a", Outcome.KILLED, killer="PRD-1"), trial("b", Outcome.KILLED, killer="PRD-2")], path)
    record_killers([trial("a", Outcome.SURVIVED)], path)
    assert read_killers(path) == {"b": Killer("PRD-2", 1)}


def run_recorded(folder: Path, *names: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "highwater.soak.power", *names, "--mutants", "0", "--recorded"]
    return subprocess.run(command, cwd=folder, env={**os.environ}, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_sample_of_the_mutants_is_killed(tmp_path: Path) -> None:
    ended = run_recorded(tmp_path, *SAMPLE)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(SAMPLE)} of {len(SAMPLE)} mutants died" in ended.stdout
