"""The fault schedule: reading and writing, error messages for invalid faults, and shrinking."""

import re
from pathlib import Path

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.fuzz.schedule import (
    CLIENTS,
    KINDS,
    MESSAGE,
    Fault,
    Schedule,
    check,
    read_schedule,
    shrink,
    write_schedule,
)

KILL = Fault(at_ms=100, for_ms=50, kind="kill", nodes=("2",), options={"lose": "unflushed"})


def test_a_schedule_round_trips_through_its_file(tmp_path: Path) -> None:
    schedule = Schedule(duration_ms=1_000, seed=7, faults=(KILL, Fault(at_ms=5, kind="expire", nodes=("controller",))))
    write_schedule(tmp_path / "s.json", schedule)
    assert read_schedule(tmp_path / "s.json", ("1", "2")) == schedule
    assert [fault.at_ms for fault in schedule.in_order()] == [5, 100]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"kind": "meteor"}, "unknown fault 'meteor'; known: kill"),
        ({"nodes": ("4",)}, "unknown node '4'; known: 1, 2"),
        ({"nodes": ()}, "no nodes"),
        ({"nodes": ("leader(t)",)}, "unknown node 'leader(t)'"),
        ({"at_ms": -1}, "at_ms is negative (-1)"),
        ({"for_ms": -5}, "for_ms is negative (-5)"),
        ({"at_ms": 1_001}, "at_ms 1001 is after the end"),
        ({"kind": "expire", "options": {}}, "expire takes no time"),
        ({"options": {"loose": "torn"}}, "kill has no option 'loose'; it has: lose"),
        ({"options": {"lose": "everything"}}, "lose is 'everything'; one of: nothing, unflushed, torn"),
        ({"kind": "delay", "options": {"ms": "long"}}, "ms is 'long'; give a number"),
        ({"kind": "delay", "options": {"ms": -3}}, "ms is negative (-3)"),
    ],
)
def test_an_invalid_fault_is_rejected_with_its_number_and_reason(changes: dict[str, object], what: str) -> None:
    schedule = Schedule(duration_ms=1_000, faults=(KILL, msgspec.structs.replace(KILL, **changes)))
    with pytest.raises(UsageError, match=re.escape(what)) as rejected:
        check(schedule, ("1", "2"), where="s.json")
    assert str(rejected.value).startswith("s.json: fault 1: ")


@pytest.mark.parametrize("text", ["[", "{}", '{"duration_ms": 5, "fault": []}', '{"duration_ms": 0}'])
def test_a_file_that_is_no_schedule_is_rejected_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(str(path))):
        read_schedule(path)


def test_the_default_of_every_option_is_a_valid_value() -> None:
    for name, kind in KINDS.items():
        defaults = {key: values[0] for key, values in kind.options.items()}
        nodes = (CLIENTS if name == MESSAGE else "1",)
        fault = Fault(at_ms=0, kind=name, nodes=nodes, options=defaults)
        check(Schedule(duration_ms=1, faults=(fault,)))
        assert all(fault.option(key) == default for key, default in defaults.items())


def test_shrinking_keeps_the_faults_that_are_needed_together() -> None:
    faults = tuple(Fault(at_ms=at, kind="pause", nodes=("1",)) for at in range(20))
    tried: list[int] = []

    def breaks(schedule: Schedule) -> bool:
        tried.append(len(schedule.faults))
        return {3, 17} <= {fault.at_ms for fault in schedule.faults}

    smallest = shrink(Schedule(duration_ms=100, faults=faults), breaks)
    assert [fault.at_ms for fault in smallest.faults] == [3, 17]
    assert len(tried) < 40
