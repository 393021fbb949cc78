"""Guards of the controller, and one of the leader: the same commands run with the guard and without it."""

from dataclasses import dataclass

import pytest

from highwater.fuzz.scenarios.runner import Scenario
from highwater.fuzz.simulator.clients.producers import Producer, RetryingClient
from highwater.fuzz.simulator.cluster import TOPIC, Settings, SimulatedCluster
from highwater.reference.effects import STORE, Effect, Instant, broker_peer
from highwater.reference.store.messages import Delete
from highwater.reference.wire.messages.replicas import ElectLeadersRequest

CLUSTER = "cluster 7 assigned=2,3,4 auto_leader_rebalance_enable=false min_insync_replicas=1"


@dataclass(frozen=True)
class GuardCase:
    """A script whose last command prints `shows` with the guard off, and does not print it with the guard on."""

    guard: str
    script: str
    shows: str


CASES = [
    # A leader needs all committed records: without the guard 4 is elected although it is out of the ISR.
    GuardCase(
        "ElectFromIsr",
        "crash 4\nexpire 4\nrun 300\nproduce m1\nrestart 4\nhold 4 -> 2\nhold 4 -> 3\nrun 200\n"
        "crash 2\ncrash 3\nexpire 2\nexpire 3\nrun 400\nread",
        "from 4: []",
    ),
    GuardCase(
        "PreferOnlyInSync",
        "crash 2\nexpire 2\nrun 300\nproduce m1\nhold 2 -> 3\nrestart 2\nrun 100\nelect preferred\nrun 200\nread",
        "from 2: []",
    ),
    GuardCase(
        "AppendNeedsMinIsr",
        "crash 3\ncrash 4\nexpire 3\nexpire 4\nrun 400\nalter min.insync.replicas=2\nrun 100\nproduce m1 patience=300",
        "LeaderWrite",
    ),
    GuardCase("FencedLeavesIsr", "crash 4\nexpire 4\nrun 100\nstored", "isr {2,3,4}"),
    GuardCase("BumpLeaderEpoch", "crash 2\nexpire 2\nrun 300\nstored", "leader 3 epoch 0"),
    # A reassignment that skips a step, and the partition state in the store afterwards.
    GuardCase("AwaitTargetInSync", "hold 5 -> 2\nhold 6 -> 2\nreassign 5 6 7\nrun 300", "ReassignmentStep  step 4"),
    GuardCase("MoveLeaderToTarget", "reassign 5 6 7\nuntil ReassignmentStep step=8\nstored", "leader 2"),
    GuardCase("ShrinkBeforeDelete", "reassign 4 5 6\nuntil ReassignmentStep step=10\nstored", "isr {2,3,4,5,6}"),
    GuardCase("PersistAssignmentLast", "reassign 5 6 7\nuntil ReassignmentStep step=6\nstored", "assigned {5,6,7}"),
    GuardCase("AnnounceBothReplicaSets", "reassign 5 6 7\nuntil ReassignmentStep step=2\nstored", "assigned {5,6,7}"),
    GuardCase("DeletionAwaitsReplicas", "crash 4\nexpire 4\nrun 300\ndelete\nrun 500\nstored", "no such topic"),
    GuardCase(
        "DeletionWaitsForReassignment",
        "hold 5 -> 2\nreassign 5 6 7\nuntil ReassignmentStep step=3\ndelete\nrun 500\nstored",
        "no such topic",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.guard)
def test_only_without_the_guard_the_script_prints_the_violation(case: GuardCase) -> None:
    for guards_off, happens in (("", False), (f"guards_off={case.guard}", True)):
        output = Scenario().run(f"{CLUSTER} {guards_off}\n{case.script}")
        assert (case.shows in output[output.rindex("\n> ") :]) is happens, output


def test_a_topic_is_deleted_once_its_reassignment_has_completed() -> None:
    """The leader still changes the ISR of a topic queued for deletion; otherwise its reassignment would never end."""
    script = "hold 5 -> 2\nreassign 5 6 7\nuntil ReassignmentStep step=3\ndelete\nrelease 5 -> 2\nrun 3000\nstored"
    output = Scenario().run(f"{CLUSTER} isr_update=alter_partition\n{script}")
    assert "no such topic" in output[output.rindex("\n> ") :], output


def moved_leader(*guards_off: str) -> SimulatedCluster:
    """Return a cluster with controller 1 and leader 2; broker 3 is the preferred leader and in sync."""
    settings = Settings(
        brokers=4, assigned=(3, 2, 4), min_insync_replicas=1, guards_off=guards_off, spread_ms=0,
        broker_settings={"auto_leader_rebalance_enable": False, "replica_lag_time_max_ms": 300},
    )  # fmt: skip
    cluster = SimulatedCluster(0, settings)
    cluster.start()
    cluster.world.crash(broker_peer(3), lose_unflushed=False)
    cluster.world.run_until(cluster.world.now_ms + 2_000)
    cluster.world.start(broker_peer(3))
    cluster.world.run_until(cluster.world.now_ms + 2_000)
    state = cluster.stored(0)
    assert state is not None
    assert (cluster.controller(), state.leader, state.isr) == (1, 2, (2, 3, 4))
    return cluster


def run(cluster: SimulatedCluster, wait_ms: int) -> None:
    cluster.world.run_until(cluster.world.now_ms + wait_ms)


def elect_preferred(cluster: SimulatedCluster) -> None:
    """Send ElectLeaders to broker 1, which acts on its own state even if it is no longer the controller."""
    asker = RetryingClient([1], ElectLeadersRequest(election_type=0, topic_partitions=None), 2, lambda reply: True)
    cluster.run_client("client:elects", asker, patience_ms=200)


@pytest.mark.parametrize("guard", ["", "ControllerEpochCas"])
def test_a_replaced_controller_writes_nothing_to_the_store(guard: str) -> None:
    """The node /controller is deleted; the old controller keeps its session and gets no notification."""
    cluster = moved_leader(*filter(None, [guard]))
    cluster.world.hold(STORE, broker_peer(1))
    broker = cluster.broker(2)
    assert broker is not None

    def delete(now: Instant) -> list[Effect]:
        broker.store.call(Delete("/controller"))
        return broker.fire(now, "unknown timer")

    cluster.world.enter(broker_peer(2), delete)
    run(cluster, 200)
    assert cluster.controller() != 1
    before = cluster.stored(0)
    elect_preferred(cluster)
    after = cluster.stored(0)
    assert (after != before) is bool(guard)


@pytest.mark.parametrize("guard", ["", "VersionCas"])
def test_a_controller_with_a_stale_isr_does_not_overwrite_a_smaller_one(guard: str) -> None:
    cluster = moved_leader(*filter(None, [guard]))
    cluster.world.hold(STORE, broker_peer(1))
    cluster.world.hold(broker_peer(4), broker_peer(2))  # 4 lags
    producer = Producer([2], TOPIC, 0, first=1, stride=1, pause_ms=50, on_ack=lambda *acked: None, leader=2)
    cluster.world.add("client:p", lambda disk: producer)
    cluster.world.start("client:p")
    run(cluster, 550)
    state = cluster.stored(0)
    assert state is not None
    assert state.isr == (2, 3)
    elect_preferred(cluster)
    state = cluster.stored(0)
    assert state is not None
    assert state.isr == ((2, 3, 4) if guard else (2, 3))


@pytest.mark.parametrize("guard", ["", "PersistBeforeSend"])
def test_no_broker_has_a_newer_leader_epoch_than_the_store(guard: str) -> None:
    settings = Settings(brokers=4, assigned=(2, 3, 4), guards_off=tuple(filter(None, [guard])), spread_ms=0)
    cluster = SimulatedCluster(0, settings)
    cluster.start()
    cluster.world.crash(broker_peer(2), lose_unflushed=False)
    ahead = False
    for _ in range(2_000):
        run(cluster, 1)
        state, replica = cluster.stored(0), cluster.replica(3, 0)
        assert state is not None
        assert replica is not None
        ahead |= replica.leader_epoch > state.leader_epoch
    assert ahead is bool(guard)


@pytest.mark.parametrize("guard", ["", "ClaimCas"])
def test_no_two_controllers_have_the_same_epoch(guard: str) -> None:
    """KAFKA-6082: 2 reads the controller epoch, and writes the next one only after 3 has already used it."""
    settings = Settings(brokers=3, guards_off=tuple(filter(None, [guard])), spread_ms=0)
    cluster = SimulatedCluster(0, settings)
    cluster.start()
    world = cluster.world
    two = broker_peer(2)
    world.crash(broker_peer(1), lose_unflushed=False)
    while cluster.controller() == 1:
        run(cluster, 1)
    world.hold(STORE, two)
    run(cluster, 5)  # 2 reads the epoch; the response is held
    world.hold(two, STORE)
    world.release(STORE, two)
    while cluster.controller() != 3:  # the write of 2 is held, too
        run(cluster, 1)
    world.crash(broker_peer(3), lose_unflushed=False)
    world.enter(STORE, lambda now: cluster.store().expire(now, broker_peer(3)))
    run(cluster, 20)
    world.release(broker_peer(2), STORE)
    run(cluster, 1_000)
    epoch = cluster.store().peek("/controller_epoch", lambda data, version: int(data))
    assert cluster.controller() == 2
    assert epoch == (2 if guard else 3), "1 had the first, 3 the second"


@pytest.mark.parametrize("guard", ["", "TruncateBeforeHw"])
def test_a_follower_does_not_serve_records_that_it_is_about_to_truncate(guard: str) -> None:
    """KAFKA-14704 in the second scenario of KIP-101: 1 has m2 where the leader has m3, and a higher high watermark."""
    output = Scenario().run(f"""
        cluster 2 guards_off=UncleanRestartLeavesIsr,{guard} min_insync_replicas=1 assigned=1,2
        produce m1
        run 400
        produce m2
        run 30
        crash 2 lose=unflushed
        crash 1
        expire 1
        expire 2
        restart 2
        run 300
        produce m3
        restart 1
        until BecomeFollower
        run 8
        show
    """)
    shown = output[output.rindex("> show") :]
    assert ("1 follower epoch 1 log [m1 m2] high watermark 2" in shown) is bool(guard), output
