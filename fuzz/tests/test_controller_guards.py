"""What each of the controller's rules is for: the same story with the guard and without."""

from dataclasses import dataclass

import pytest

from fuzz.scenarios.runner import Scenario

CLUSTER = "cluster 7 assigned=2,3,4 auto_leader_rebalance_enable=false min_insync_replicas=1"


@dataclass(frozen=True)
class Story:
    """`shows` is said after the last command with the guard off, and not with it on."""

    guard: str
    script: str
    shows: str


STORIES = [
    # Nobody may lead who lacks what was committed: 4 is out of the ISR, and is elected none the less.
    Story(
        "ElectFromIsr",
        "crash 4\nexpire 4\nrun 300\nproduce m1\nrestart 4\nhold 4 -> 2\nhold 4 -> 3\nrun 200\n"
        "crash 2\ncrash 3\nexpire 2\nexpire 3\nrun 400\nread",
        "from 4: []",
    ),
    Story(
        "PreferOnlyInSync",
        "crash 2\nexpire 2\nrun 300\nproduce m1\nhold 2 -> 3\nrestart 2\nrun 100\nelect preferred\nrun 200\nread",
        "from 2: []",
    ),
    Story("FencedLeavesIsr", "crash 4\nexpire 4\nrun 100\nstored", "isr {2,3,4}"),
    Story("BumpLeaderEpoch", "crash 2\nexpire 2\nrun 300\nstored", "leader 3 epoch 0"),
    # A move that skips a step, and what the store says then.
    Story("AwaitTargetInSync", "hold 5 -> 2\nhold 6 -> 2\nreassign 5 6 7\nrun 300", "ReassignmentStep  step 4"),
    Story("MoveLeaderToTarget", "reassign 5 6 7\nuntil ReassignmentStep step=8\nstored", "leader 2"),
    Story("ShrinkBeforeDelete", "reassign 4 5 6\nuntil ReassignmentStep step=10\nstored", "isr {2,3,4,5,6}"),
    Story("PersistAssignmentLast", "reassign 5 6 7\nuntil ReassignmentStep step=6\nstored", "assigned {5,6,7}"),
    Story("AnnounceBothReplicaSets", "reassign 5 6 7\nuntil ReassignmentStep step=2\nstored", "assigned {5,6,7}"),
    Story("DeletionAwaitsReplicas", "crash 4\nexpire 4\nrun 300\ndelete\nrun 500\nstored", "no such topic"),
    Story(
        "DeletionWaitsForReassignment",
        "hold 5 -> 2\nreassign 5 6 7\nuntil ReassignmentStep step=3\ndelete\nrun 500\nstored",
        "no such topic",
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.guard)
def test_without_the_guard_it_happens(story: Story) -> None:
    for guards_off, happens in (("", False), (f"guards_off={story.guard}", True)):
        output = Scenario().run(f"{CLUSTER} {guards_off}\n{story.script}")
        assert (story.shows in output[output.rindex("\n> ") :]) is happens, output
