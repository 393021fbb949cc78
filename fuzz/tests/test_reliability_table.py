"""The recovery table of kafka-0.10-reliability (section 3.6), row by row.

The replicas are 2, 3 and 4, and 1 is the controller. 4 is out of the ISR; acks=all, min.insync.replicas=2, no unclean
election. One ISR member dies, then the other, or both die at once. The rows are those of the ZooKeeper era, in which a
crashed broker stays in the ISR; the last test repeats one of them with UncleanRestartLeavesIsr (KIP-966).
"""

from dataclasses import dataclass

import pytest

from highwater.fuzz.scenarios.runner import Scenario

WITHOUT_KIP_966 = "guards_off=UncleanRestartLeavesIsr"
ONE_DIES = "crash 2\nexpire 2\nrun 400"
ONE_AFTER_THE_OTHER = f"{ONE_DIES}\ncrash 3\nexpire 3\nrun 400"
# The controller learns of both at once.
BOTH_AT_ONCE = "hold store -> 1\ncrash 2\ncrash 3\nexpire 2\nexpire 3\nrun 50\nrelease store -> 1\nrun 400"
WRITE_WITH_ONE = "alter min.insync.replicas=1\nrun 100"


@dataclass(frozen=True)
class Row:
    """The commands of the failure and of the recovery, and then leader, ISR, and whether reads and writes succeed."""

    name: str
    failure: str
    recovery: str
    leader: int
    isr: str
    reads: bool
    writes: bool


ROWS = [
    Row("one dies: reads", ONE_DIES, "", 3, "{3}", True, False),
    Row("one dies and comes back", ONE_DIES, "restart 2\nrun 1500", 3, "{2,3}", True, True),
    Row("one dies for good", ONE_DIES, WRITE_WITH_ONE, 3, "{3}", True, True),
    Row("both die in turn: nothing", ONE_AFTER_THE_OTHER, "", -1, "{3}", False, False),
    Row("both come back", ONE_AFTER_THE_OTHER, "restart 2\nrestart 3\nrun 1500", 3, "{2,3}", True, True),
    Row("the first to die comes back", ONE_AFTER_THE_OTHER, "restart 2\nrun 1500", -1, "{3}", False, False),
    Row(
        "the first to die is elected uncleanly",
        ONE_AFTER_THE_OTHER,
        f"restart 2\nrun 1500\n{WRITE_WITH_ONE}\nelect unclean\nrun 400",
        2,
        "{2}",
        True,
        True,
    ),
    Row("the last to die comes back", ONE_AFTER_THE_OTHER, "restart 3\nrun 1500", 3, "{3}", True, False),
    Row("it may write alone", ONE_AFTER_THE_OTHER, f"restart 3\nrun 1500\n{WRITE_WITH_ONE}", 3, "{3}", True, True),
    Row(
        "neither comes back: the third is elected uncleanly",
        ONE_AFTER_THE_OTHER,
        f"restart 4\nrun 1500\n{WRITE_WITH_ONE}\nelect unclean\nrun 400",
        4,
        "{4}",
        True,
        True,
    ),
    Row("both die at once: nothing", BOTH_AT_ONCE, "", -1, "{2,3}", False, False),
    Row("one of both comes back", BOTH_AT_ONCE, "restart 2\nrun 1500", 2, "{2}", True, False),
    Row("both of both come back", BOTH_AT_ONCE, "restart 2\nrestart 3\nrun 1500", 2, "{2,3}", True, True),
]


def run_row(failure: str, recovery: str, settings: str) -> str:
    """Run the commands of a row and return the output."""
    script = f"""
        cluster 4 assigned=2,3,4 {settings} min_insync_replicas=2
        crash 4
        expire 4
        run 400
        produce m1
        {failure}
        {recovery}
        stored
        read
        produce m2 patience=5000
    """
    return Scenario().run(script)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_of_the_recovery_table(row: Row) -> None:
    output = run_row(row.failure, row.recovery, WITHOUT_KIP_966)
    after = output[output.index("> stored") :]
    assert f"leader {row.leader} " in after, output
    assert f"isr {row.isr}" in after, output
    assert ("  from " in after) is row.reads, output
    assert ("m2 acknowledged" in after) is row.writes, output


def test_after_an_unclean_restart_the_partition_waits_for_an_eligible_replica() -> None:
    """Both died at once; with KIP-966 the first to come back leaves the ISR, because its tail may be lost."""
    output = run_row(BOTH_AT_ONCE, "restart 2\nrun 1500", "")
    assert "leader -1 " in output[output.index("> stored") :], output
    output = run_row(BOTH_AT_ONCE, "restart 2\nrestart 3\nrun 1500", "")
    assert "m2 acknowledged" in output, output
