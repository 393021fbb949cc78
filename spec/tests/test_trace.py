"""A trace of a failover is accepted; with a missing line or a changed value it is rejected at that line."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.errors import UsageError, Verdict
from highwater.spec.formats.trace import Step, read_trace, renumber, write_trace
from highwater.spec.refusal import conjuncts
from highwater.spec.trace import FOLDER, EntityVerdict, read_layout, validate_trace

# Broker 1 leads and crashes; broker 2 becomes leader and writes another record at the same offset; broker 1 restarts,
# truncates its log to the end of its epoch in the log of 2, catches up and joins the ISR.
FAILOVER = Path(__file__).with_name("traces") / "failover.ndjson"


def validate(
    folder: Path, steps: list[Step], *, explain: bool = False, guards_off: Collection[str] = ()
) -> EntityVerdict:
    path = folder / "trace.ndjson"
    write_trace(path, steps)
    (found,) = validate_trace(path, "hw_truncation", explain=explain, guards_off=guards_off).entities
    return found


def test_a_line_that_is_missing_or_stands_elsewhere_is_noticed_by_its_number(tmp_path: Path) -> None:
    steps = read_trace(FAILOVER)
    found = validate(tmp_path, steps[:7] + steps[8:])
    assert (found.verdict, found.model, found.line) == (Verdict.INVALID, "seq", 8)
    assert found.reason == "expected seq 7, not 8: a line is missing or was moved"
    found = validate(tmp_path, [*steps[:3], steps[20], *steps[4:20], steps[3], *steps[21:]])
    assert (found.model, found.line, found.reason[:22]) == ("seq", 4, "expected seq 3, not 20")
    late = msgspec.structs.replace(steps[5], time_ns=steps[9].time_ns + 1)
    found = validate(tmp_path, [*steps[:5], late, *steps[6:]])
    assert (found.model, found.line, found.reason[:16]) == ("seq", 7, "expected time_ns")


# Renumbered, so that only the model can detect it: the line in which the broker truncates its log is missing.
@pytest.mark.long
def test_a_missing_line_is_noticed_by_what_it_did(tmp_path: Path) -> None:
    steps = read_trace(FAILOVER)
    at = next(slot for slot, step in enumerate(steps) if step.action == "TruncateToEpochEnd")
    found = validate(tmp_path, renumber(steps[:at] + steps[at + 1 :]), explain=True)
    assert found.verdict is Verdict.INVALID
    assert found.line is not None
    assert found.line > at
    assert "SendFetch" in found.reason
    assert [text.partition(": ")[2] for text in found.conjuncts] == ["offset = Request(f).offset"]
    assert any("highWatermark" in line for line in found.before)


def test_a_step_that_the_module_does_not_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accepted trace goes through [Next]_vars: here the module has no step for the first line."""
    shutil.copytree(FOLDER / "hw_truncation", tmp_path / "hw_truncation")
    module = tmp_path / "hw_truncation" / "HwTruncation.tla"
    text = module.read_text()
    assert text.count("LeaderWrite(l, 1)") == 1
    module.write_text(text.replace("LeaderWrite(l, 1)", "FALSE"))
    monkeypatch.setattr("highwater.spec.trace.FOLDER", tmp_path)
    steps = read_trace(FAILOVER)
    found = validate(tmp_path, steps)
    assert found.verdict is Verdict.INVALID
    assert found.line is not None
    assert found.reason.startswith("LeaderWrite of 1 with count 1")
    assert "a step that the module does not have" in found.reason


@pytest.mark.parametrize(
    ("action", "part", "name", "value"),
    [
        ("LeaderAck", "choices", "last_offset", 2),
        ("LeaderWrite", "choices", "count", "all"),  # not a number
        ("ElectLeader", "state", "isr", [1, "two"]),
    ],
)
def test_a_changed_value_is_noticed(tmp_path: Path, action: str, part: str, name: str, value: Any) -> None:
    steps = read_trace(FAILOVER)
    at = next(slot for slot, step in enumerate(steps) if step.action == action)
    assert getattr(steps[at], part)[name] != value
    steps[at] = msgspec.structs.replace(steps[at], **{part: {**getattr(steps[at], part), name: value}})
    found = validate(tmp_path, steps)
    assert (found.verdict, found.line) == (Verdict.INVALID, at + 1)


@pytest.mark.long
def test_the_conjunct_that_refuses_a_line_is_named(tmp_path: Path) -> None:
    steps = read_trace(FAILOVER)
    at = next(slot for slot, step in enumerate(steps) if step.action == "LeaderAck")
    steps[at] = msgspec.structs.replace(steps[at], choices={**steps[at].choices, "last_offset": 2})
    (conjunct,) = validate(tmp_path, steps, explain=True).conjuncts
    assert conjunct.startswith("HwTruncation.tla:")
    assert conjunct.endswith(": lastOffset < IF AckAfterCommit THEN highWatermark[l] ELSE LogEnd(l)")


@pytest.mark.parametrize("model", ["isr_commit", "eager_rebalance", "cooperative_rebalance", "controller_failover"])
def test_each_action_of_a_trace_has_conjuncts(model: str) -> None:
    """Each has at least that of the step that every line has; most have several."""
    module = next((FOLDER / model).glob("Trace*.tla"))
    counts = [len(list(conjuncts(module, action))) for action in read_layout(model).actions]
    assert min(counts) >= 1
    assert sum(counts) > 5 * len(counts)


def test_traces_of_processes_are_merged_with_the_crash_between_two_lives(tmp_path: Path) -> None:
    steps = read_trace(FAILOVER)
    lives: dict[str, list[Step]] = {}
    crashed = 0
    for step in steps:
        crashed += step.action == "Crash"
        if step.action != "Crash":
            lives.setdefault("store.0" if step.node == 9 else f"{step.node}.{crashed * (step.node == 1)}", []).append(
                step
            )
    for name, own_steps in lives.items():
        write_trace(tmp_path / f"{name}.ndjson", renumber(own_steps))
    assert sorted(lives) == ["1.0", "1.1", "2.0", "store.0"]
    # Killed during a write: the last step is not in the trace, but its record is in the log of the next life.
    killed = tmp_path / "1.0.ndjson"
    assert lives["1.0"][-1].action == "LeaderWrite"
    killed.write_bytes(killed.read_bytes()[:-9])
    for model in ("hw_truncation", "isr_commit"):
        (found,) = validate_trace(tmp_path, model).entities
        assert (found.verdict, found.steps) == (Verdict.VALID, 29)

    write_trace(tmp_path / "2.0.ndjson", lives["2.0"][:3] + lives["2.0"][4:])
    (found,) = validate_trace(tmp_path, "hw_truncation").entities
    assert (found.verdict, found.model, found.file) == (Verdict.INVALID, "seq", "2.0.ndjson")

    (tmp_path / "1.0.ndjson").unlink()
    with pytest.raises(UsageError, match=r"1\.0\.ndjson: a life of this node is missing"):
        validate_trace(tmp_path)
    write_trace(tmp_path / "trace.ndjson", [])
    with pytest.raises(UsageError, match=r"trace\.ndjson: not a trace of a process; its name must be NODE.LIFE"):
        validate_trace(tmp_path)


def test_entities_are_judged_apart_and_crashes_concern_all(tmp_path: Path) -> None:
    steps = read_trace(FAILOVER)
    everywhere = [msgspec.structs.replace(step, entity="") if step.action == "Crash" else step for step in steps]
    other = [msgspec.structs.replace(step, entity="t-1", time_ns=0) for step in steps[1:4]]
    store_crash = Step(seq=0, time_ns=0, node="store", entity="", action="Crash")
    path = tmp_path / "trace.ndjson"
    write_trace(path, renumber([store_crash, *other, *everywhere]))
    found = validate_trace(path, "hw_truncation")
    assert [(result.entity, result.verdict, result.steps) for result in found.entities] == [
        ("t-0", Verdict.VALID, 30),
        ("t-1", Verdict.VALID, 4),
    ]


def test_an_action_that_the_spec_lacks_is_refused_at_once(tmp_path: Path) -> None:
    steps = read_trace(FAILOVER)
    steps[4] = msgspec.structs.replace(steps[4], action="Teleport")
    found = validate(tmp_path, steps)
    assert (found.verdict, found.line, found.reason) == (Verdict.INVALID, 5, "the spec has no action Teleport")


def test_no_time_is_unknown(tmp_path: Path) -> None:
    found = validate_trace(FAILOVER, "hw_truncation", timeout_s=0.01)
    assert found.verdict is Verdict.UNKNOWN
    assert found.entities[0].reason == "no result within 0.01 s"


def test_a_trace_of_nothing_and_an_unknown_model_are_bad_usage(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    path.write_text("")
    with pytest.raises(UsageError, match="contains no step"):
        validate_trace(path)
    with pytest.raises(UsageError, match=r"no model 'zk'.*known: .*hw_truncation"):
        validate_trace(FAILOVER, "zk")


def test_a_promise_that_the_steps_do_not_keep_is_named(tmp_path: Path) -> None:
    """With a guard of the spec off, its steps explain a leader that commits alone; the next leader lacks the record."""
    leads = {"log_end_offset": 0, "high_watermark": 0, "isr": [1, 2]}
    said: list[tuple[int, str, dict[str, Any], dict[str, Any]]] = [
        (9, "ElectLeader", {}, {"leader": 1, "leader_epoch": 0, "isr": [1, 2], "partition_epoch": 0}),
        (1, "BecomeLeader", {}, {**leads, "leader_epoch": 0}),
        (1, "LeaderWrite", {"count": 1}, {"log_end_offset": 1, "leader_epoch": 0}),
        (1, "LeaderAdvanceHw", {}, {"high_watermark": 1}),
        (9, "ElectLeader", {}, {"leader": 2, "leader_epoch": 1, "isr": [1, 2], "partition_epoch": 1}),
        (2, "BecomeLeader", {}, {**leads, "leader_epoch": 1}),
    ]
    steps = [
        Step(seq=seq, time_ns=seq, node=node, entity="t-0", action=action, choices=choices, state=state)
        for seq, (node, action, choices, state) in enumerate(said)
    ]
    found = validate(tmp_path, steps, guards_off={"HwNeedsWholeIsr"})
    assert (found.verdict, found.line) == (Verdict.INVALID, 6)
    assert found.reason.startswith("the steps are those of the spec, but after BecomeLeader of 2")
    assert "the promise CommittedOnIsr does not hold" in found.reason
