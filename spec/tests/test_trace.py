"""A trace of a failover is accepted; with a line missing or a value changed it is refused at that place."""

from pathlib import Path

import msgspec
import pytest

from spec.formats.trace import Step, read_trace, write_trace
from spec.formats.verdict import UsageError, Verdict
from spec.trace import EntityVerdict, validate_trace

# Broker 1 leads, crashes; 2 takes over and writes another record at the same offset; 1 comes back, cuts its log
# where 2 says that its epoch ended, catches up and joins the ISR.
FAILOVER = Path(__file__).with_name("traces") / "failover.ndjson"


def validate(folder: Path, steps: list[Step]) -> EntityVerdict:
    path = folder / "trace.ndjson"
    write_trace(path, steps)
    (found,) = validate_trace(path, "hw_truncation").entities
    return found


def test_a_failover_is_a_behaviour_of_the_spec() -> None:
    found = validate_trace(FAILOVER)
    assert found.verdict is Verdict.VALID
    hw = next(each for each in found.entities if each.model == "hw_truncation")
    assert (hw.entity, hw.steps, hw.line) == ("t-0", 30, None)


# What goes, and what then cannot be: 1 leads before it was elected; 2 serves more than it has; ...
@pytest.mark.parametrize(
    ("dropped", "refused"),
    [("ElectLeader", "BecomeLeader"), ("LeaderWrite", "LeaderServeFetch"), ("TruncateToEpochEnd", "SendFetch")],
)
def test_a_missing_line_is_noticed(tmp_path: Path, dropped: str, refused: str) -> None:
    steps = read_trace(FAILOVER)
    at = next(slot for slot, step in enumerate(steps) if step.action == dropped)
    found = validate(tmp_path, steps[:at] + steps[at + 1 :])
    assert found.verdict is Verdict.INVALID
    assert found.line is not None
    assert found.line > at
    assert refused in found.reason
    assert any("highWatermark" in line for line in found.before)


@pytest.mark.parametrize(
    ("action", "part", "name", "value"),
    [
        ("LeaderServeFetch", "state", "high_watermark", 2),
        ("LeaderAck", "choices", "last_offset", 2),
        ("TruncateToEpochEnd", "choices", "offset", 1),
    ],
)
def test_a_changed_value_is_noticed(tmp_path: Path, action: str, part: str, name: str, value: int) -> None:
    steps = read_trace(FAILOVER)
    at = next(slot for slot, step in enumerate(steps) if step.action == action)
    assert getattr(steps[at], part)[name] != value
    steps[at] = msgspec.structs.replace(steps[at], **{part: {**getattr(steps[at], part), name: value}})
    found = validate(tmp_path, steps)
    assert (found.verdict, found.line) == (Verdict.INVALID, at + 1)


def test_entities_are_judged_apart_and_crashes_concern_all(tmp_path: Path) -> None:
    steps = read_trace(FAILOVER)
    everywhere = [msgspec.structs.replace(step, entity="") if step.action == "Crash" else step for step in steps]
    other = [msgspec.structs.replace(step, entity="t-1") for step in steps[:3]]
    stranger = Step(seq=0, time_ns=0, node="store", entity="", action="Crash")
    path = tmp_path / "trace.ndjson"
    write_trace(path, [stranger, *other, *everywhere])
    found = validate_trace(path, "hw_truncation")
    assert [(each.entity, each.verdict, each.steps) for each in found.entities] == [
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
    assert found.entities[0].reason == "no end within 0.01 s"


def test_a_trace_of_nothing_and_an_unknown_model_are_bad_usage(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    path.write_text("")
    with pytest.raises(UsageError, match="holds no step"):
        validate_trace(path)
    with pytest.raises(UsageError, match=r"no model 'zk'.*known: .*hw_truncation"):
        validate_trace(FAILOVER, "zk")
