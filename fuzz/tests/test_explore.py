"""`highwater explore`: paths, what a walk finds, how it shrinks, and the folder of a difference."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path as File

import msgspec
import pytest
from hypothesis import Phase, given, settings

from highwater.conformance.cases.programs import PROGRAMS
from highwater.conformance.client.draws import Followed, Path, Step
from highwater.conformance.targets import launch_target
from highwater.errors import ExitCode, UsageError
from highwater.fuzz.explore.command_line import _exit_code, never_met
from highwater.fuzz.explore.explorer import Explorer
from highwater.fuzz.explore.finding import read_walk, write_findings
from highwater.fuzz.explore.ground import Ground, Kind, Transition, Walked
from highwater.fuzz.explore.met import read_met
from highwater.fuzz.explore.simplify import simplify
from highwater.fuzz.explore.strategies import paths
from highwater.reference.wire.errors import ErrorCode

GUARD = "FenceStaleFetch"
FINDER = "everything-and-restarts"


@pytest.fixture(scope="module")
def ground() -> Ground:
    return Ground(launch_target("simulator:3"))


@pytest.fixture(scope="module")
def unguarded() -> Explorer:
    """An explorer that has walked on a broker without the guard."""
    explorer = Explorer(Ground(launch_target("simulator:3", guards_off=(GUARD,))), [FINDER], 30.0, 1, most=1)
    explorer.run()
    return explorer


def frames(walked: Walked) -> list[bytes]:
    return [event.data for event in walked.log if event.data]


def a_path() -> Path:
    return Path((Step(seed=5),), ((Step(3, 7), Step(9, 8), Step(20, 9)), (Step(1, 1),)))


@pytest.mark.parametrize("program", ["writes", "transactions", "members", "everything"])
def test_a_path_is_walked_in_the_same_way_again_and_without_its_seeds(ground: Ground, program: str) -> None:
    first = ground.walk(program, a_path())
    assert not first.failure
    assert not first.unfit
    assert frames(ground.walk(program, a_path())) == frames(first)
    assert frames(ground.walk(program, first.taken)) == frames(first)
    assert not any(step.seed for loop in first.taken.loops for step in loop)


def test_a_step_that_is_left_out_changes_no_other() -> None:
    def chosen(path: Path) -> list[tuple[int, float]]:
        draws = Followed(path)
        chance = draws.generator(1)
        return [(number, chance.random()) for number in draws.steps(50, chance)]

    steps = (Step(3, 7), Step(9, 8), Step(20, 9))
    assert chosen(Path(loops=((steps[0], steps[2]),))) == [chosen(Path(loops=(steps,)))[each] for each in (0, 2)]
    assert chosen(Path(loops=((Step(3),),)))[0][1] > 0.999, "the simplest probability is missed"


@settings(max_examples=30, phases=[Phase.generate], deadline=None, database=None)
@given(path=paths())
def test_the_reference_gives_the_answers_of_the_models(ground: Ground, path: Path) -> None:
    """As anyone would write it for a broker of their own."""
    walked = ground.walk("everything", path)
    assert not walked.failure, walked.failure


def test_a_broker_without_a_guard_is_found_and_the_walk_is_short(unguarded: Explorer) -> None:
    (found,) = unguarded.differences.values()
    assert "FENCED_LEADER_EPOCH" in found.smallest.failure
    assert found.repeated == 2
    assert len(found.smallest.path) <= min(4, found.first)


def test_the_folder_of_a_difference_repeats_it(unguarded: Explorer, tmp_path: File) -> None:
    (place,) = write_findings(tmp_path, list(unguarded.differences.values()), "simulator:3", "x", 1)
    finding = read_walk(place / "walk.json")
    assert Ground(launch_target("simulator:3", guards_off=(GUARD,))).walk(FINDER, finding.path).key == finding.key
    assert not Ground(launch_target("simulator:3")).walk(FINDER, finding.path).failure
    assert "FENCED_LEADER_EPOCH" in (place / "README.md").read_text()
    for options, code in (([], 0), (["--hw-guard-off", GUARD], 1)):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "highwater.conformance.plugin", "test_walk.py"]
        ran = subprocess.run(
            [*command, "--hw-target", "simulator:3", *options],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == code, ran.stdout


def test_what_no_walk_met_is_named(ground: Ground) -> None:
    """`met.json` has what each program met; one short run meets less."""
    explorer = Explorer(ground, ["deletions"], 1.0, 1)
    explorer.run()
    assert read_met().keys() <= PROGRAMS.keys()
    assert "DeleteRecords" in read_met()["deletions"]
    explorer.coverage.transitions.pop(Transition("DeleteRecords", ErrorCode.OFFSET_OUT_OF_RANGE), None)
    assert "1 (OFFSET_OUT_OF_RANGE)" in never_met(explorer.coverage)["DeleteRecords"]


class DyingGround(Ground):
    """A broker that a walk with a step kills, and that is not started again."""

    is_dead = False

    def walk(self, program: str, path: Path) -> Walked:
        walked = super().walk(program, path)
        self.is_dead |= len(path) > 0
        return replace(walked, failure="closed; gone", kind=Kind.DEAD) if self.is_dead else walked

    def is_alive(self) -> bool:
        return not self.is_dead


def test_a_broker_that_died_is_a_difference_although_it_cannot_be_met_again() -> None:
    explorer = Explorer(DyingGround(launch_target("simulator:1")), ["settings"], 20.0, 1)
    explorer.run()
    assert explorer.ended == "the broker no longer answers"
    assert [each.repeated for each in explorer.differences.values()] == [0]
    assert _exit_code(explorer) == ExitCode.VIOLATED


class DefectiveGround(Ground):
    def walk(self, program: str, path: Path) -> Walked:
        raise RuntimeError("a defect of ours")


def test_a_defect_of_the_explorer_is_not_taken_for_a_walk() -> None:
    explorer = Explorer(DefectiveGround(launch_target("simulator:1")), ["settings"], 2.0, 1)
    with pytest.raises(RuntimeError, match="a defect of ours"):
        explorer.run()


def test_a_file_that_is_no_walk_is_refused(tmp_path: File) -> None:
    (tmp_path / "walk.json").write_text("{}")
    with pytest.raises(UsageError, match="not a walk"):
        read_walk(tmp_path / "walk.json")


def test_simplify_makes_every_choice_the_first_that_is_not_needed(ground: Ground) -> None:
    """The difference here is a step whose second choice is 7."""
    long = Path((Step(choices=(4, 4)),), ((Step(1, choices=(5, 7, 9)), Step(2, choices=(3, 3, 3))),))
    walked = ground.walk("settings", Path())

    def again(path: Path) -> Walked | None:
        met = any(len(step.choices) > 1 and step.choices[1] == 7 for loop in path.loops for step in loop)
        return Walked("settings", path, path, walked.log, "found") if met else None

    start = Walked("settings", long, long, walked.log, "found")
    assert simplify(start, again, lambda: False).path == Path((Step(),), ((Step(1, choices=(0, 7)),),))


def explore(*arguments: str, cwd: File) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "highwater", "explore", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["simulator:3", "--program", "wrietes"], ExitCode.USAGE, "writes"),
        ([], ExitCode.USAGE, "no target"),
        (["nobroker"], ExitCode.USAGE, "no such target"),
        (["simulator:3", "--seconds", "0"], ExitCode.USAGE, "--seconds"),
        (["simulator:3", "--seconds", "30", "--program", "quotas"], ExitCode.UNDECIDED, "no program fits the target"),
    ],
)
def test_what_cannot_be_explored_is_said_in_one_line(
    arguments: list[str], code: int, said: str, tmp_path: File
) -> None:
    ran = explore(*arguments, cwd=tmp_path)
    assert ran.returncode == code
    assert said in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_interruption_keeps_what_was_covered(tmp_path: File) -> None:
    command = [sys.executable, "-m", "highwater", "explore", "simulator:1", "--seconds", "60", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "walks" in process.stderr.readline()  # after ten seconds, whenever the run has begun
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    summary = msgspec.json.decode(output)
    assert process.returncode == ExitCode.UNDECIDED
    assert summary["ended"] == "interrupted"
    assert summary["replies"] > 0
    assert not summary["differences"]
