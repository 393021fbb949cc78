"""Runs of the simulator are behaviours of the models; with a guard off, or a line spoilt, they are not."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from fuzz.kept import FOLDER, read_kept
from spec.formats.trace import Step, write_trace
from spec.formats.verdict import Verdict
from spec.trace import EntityVerdict, validate_trace

# Of each model: the kept seed whose run is traced, with its guard on; the entity; and how many of its lines.
RUNS: Final = {
    "eager_rebalance": ("FenceStaleGeneration", "g", 200),
    "cooperative_rebalance": ("WithholdClaimed", "g", 200),
    "isr_commit": ("HwWaitsForProposed", "t-0", 300),
    "hw_truncation": ("HwWaitsForProposed", "t-0", 300),
    "controller_failover": ("MoveLeaderToTarget", "t-0", 5_000),
}
# Guards whose absence a model sees in the trace of the kept seed.
SEEN: Final = (
    ("eager_rebalance", "FenceStaleGeneration", "g", "HandleCommit"),
    ("cooperative_rebalance", "WithholdClaimed", "g", "HandleSync"),
    ("isr_commit", "IsrCas", "t-0", "LeaderChangeIsr"),
    ("hw_truncation", "IsrCas", "t-0", "LeaderChangeIsr"),
    ("controller_failover", "BumpLeaderEpoch", "t-0", "ElectLeader"),
)


@cache
def traced(guard: str, entity: str, *, off: bool = False) -> tuple[Step, ...]:
    steps = read_kept(FOLDER / f"{guard}.json").run(off=off, tracing=True).steps
    return tuple(step for step in steps if step.entity in {"", entity})


def judge(folder: Path, model: str, steps: list[Step]) -> EntityVerdict:
    path = folder / "trace.ndjson"
    write_trace(path, steps)
    (found,) = validate_trace(path, model, explain=False).entities
    return found


def run_of(model: str) -> list[Step]:
    guard, entity, lines = RUNS[model]
    return list(traced(guard, entity)[:lines])


@pytest.mark.parametrize("model", RUNS)
def test_a_run_with_faults_is_a_behaviour_of_the_spec(tmp_path: Path, model: str) -> None:
    found = judge(tmp_path, model, run_of(model))
    assert found.verdict is Verdict.VALID, (found.line, found.reason)
    assert found.steps >= 20


@pytest.mark.parametrize(("model", "guard", "entity", "refused"), SEEN)
def test_without_a_guard_the_trace_is_refused(
    tmp_path: Path, model: str, guard: str, entity: str, refused: str
) -> None:
    found = judge(tmp_path, model, list(traced(guard, entity, off=True)))
    assert found.verdict is Verdict.INVALID
    assert f" {refused}" in found.reason


# What is spoilt: the first line of this action is dropped, or one of its values is another.
FIXED: Final[tuple[tuple[str, str, str | None, dict[str, Any]], ...]] = (
    ("eager_rebalance", "GroupStored", None, {}),
    ("cooperative_rebalance", "CompleteJoin", None, {}),
    ("isr_commit", "LeaderAck", "choices", {"last_offset": 99}),
    ("controller_failover", "BecomeLeader", "state", {"controller_epoch": 9}),
    ("controller_failover", "ElectLeader", "state", {"leader_epoch": 5}),
)


@pytest.mark.parametrize(("model", "action", "part", "changed"), FIXED)
def test_a_spoilt_line_is_noticed(
    tmp_path: Path, model: str, action: str, part: str | None, changed: dict[str, Any]
) -> None:
    steps = run_of(model)
    at = next(slot for slot, step in enumerate(steps) if step.action == action)
    if part is None:
        del steps[at]
    else:
        steps[at] = msgspec.structs.replace(steps[at], **{part: {**getattr(steps[at], part), **changed}})
    found = judge(tmp_path, model, steps)
    assert found.verdict is Verdict.INVALID
    assert found.line is not None
    assert found.line > at
