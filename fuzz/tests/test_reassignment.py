"""A reassignment completes although the controller crashes at any of its eleven steps (kafka-0.8-principles)."""

import pytest

from highwater.fuzz.scenarios.runner import Scenario
from highwater.reference.controller.deletion import STEPS as DELETION
from highwater.reference.controller.failover import STEPS as FAILOVER
from highwater.reference.controller.reassignment import STEPS as REASSIGNMENT


def test_the_procedures_have_as_many_steps_as_their_sources() -> None:
    assert [len(steps) for steps in (FAILOVER, REASSIGNMENT, DELETION)] == [12, 11, 8]


@pytest.mark.parametrize("step", range(1, 12))
@pytest.mark.parametrize("first", [1, 2], ids=["the controller is the leader", "the controller is no replica"])
def test_the_next_controller_completes_the_reassignment(first: int, step: int) -> None:
    before, after = range(first, first + 3), range(first + 3, first + 6)
    output = Scenario().run(f"""
        cluster 7 assigned={",".join(map(str, before))}
        produce m1 m2
        reassign {" ".join(map(str, after))}
        until ReassignmentStep step={step}
        crash controller
        expire 1
        run 3000
        produce m3
        restart 1
        run 3000
        stored
        show
        read
    """)
    shown = output[output.index("> stored") :]
    moved = "{" + ",".join(map(str, after)) + "}"
    assert f"assigned {moved}" in shown, output
    assert f"isr {moved}" in shown, output
    assert shown.count(" log [m1 m2 m3]") == 3, output
    assert shown.count("has no replica") == 4, output
    assert shown.endswith("[m1 m2 m3]\n"), output
