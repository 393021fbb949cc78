"""What must have happened some time after the last fault."""

from highwater.fuzz.simulator.clients.load import SIDE_TOPIC, Clients
from highwater.fuzz.simulator.cluster import TOPIC, SimulatedCluster
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.invariants.transactions import committed_batches, torn_transactions, wrong_stable_offsets
from highwater.reference.controller.cluster import TOPICS, parse_topic
from highwater.reference.wire.records import decode_records

PATIENCE_MS = 1_500
GROUP_PATIENCE_MS = 8_000


def demand_progress(cluster: SimulatedCluster, invariants: Invariants, clients: Clients) -> None:
    """Writes are acknowledged, replicas are in the ISR, moves and deletions have ended, the group is settled."""
    world = cluster.world
    if cluster.settings.clients.old_consumers:
        _all_claimed(cluster, invariants)
        return
    before = [writer.acked for writer in clients.writers]
    world.run_until(world.now_ms + PATIENCE_MS * (2 if cluster.settings.clients.transactional else 1))
    if any(writer.acked == count for writer, count in zip(clients.writers, before, strict=True)):
        invariants.violated("LeaderCommits", "a producer got nothing acknowledged in 1.5 s, 6 s after the last fault")
    for writer in clients.writers:
        writer.stopped = True
    world.run_until(world.now_ms + PATIENCE_MS)
    _moved(cluster, invariants)
    for partition in range(cluster.settings.partitions):
        state, assigned = cluster.stored(partition), cluster.assigned(partition)
        if state is None or set(state.isr) != set(assigned):
            invariants.violated(
                "FollowersConverge",
                f"of {assigned} the ISR has {state.isr if state else None} 7.5 s after the last fault",
            )
    _nothing_left(cluster, invariants)
    _settled(cluster, invariants)
    _written_once(cluster, invariants)
    for torn in torn_transactions(cluster) if cluster.settings.clients.transactional else ():
        invariants.violated("TransactionsAreAtomic", torn)
    for wrong in wrong_stable_offsets(cluster):
        invariants.violated("LastStableOffset", wrong)


def _moved(cluster: SimulatedCluster, invariants: Invariants) -> None:
    topic = cluster.store().peek(f"{TOPICS}/{TOPIC}", lambda data, version: parse_topic(data))
    if topic is None or topic.adding or topic.removing:
        invariants.violated("MovedInTheEnd", f"replicas still move: {topic}")
    for partition in range(cluster.settings.partitions):
        state, assigned = cluster.stored(partition), cluster.assigned(partition)
        if state is not None and state.leader not in assigned:
            invariants.violated("LeaderIsAssigned", f"leader {state.leader} is none of {assigned}")
        orphans = [b for b in cluster.broker_ids if b not in assigned and cluster.replica(b, partition) is not None]
        if orphans:
            invariants.violated("NoOrphans", f"{orphans} have a replica, and {assigned} are assigned")


def _nothing_left(cluster: SimulatedCluster, invariants: Invariants) -> None:
    if cluster.store().peek(f"/admin/delete_topics/{SIDE_TOPIC}", lambda data, version: True):
        invariants.violated("DeletedInTheEnd", f"{SIDE_TOPIC} is still to be deleted")
    if cluster.store().peek(f"{TOPICS}/{SIDE_TOPIC}", lambda data, version: True) is None:
        left = [b for b in cluster.broker_ids if (broker := cluster.broker(b)) is not None
                and (SIDE_TOPIC, 0) in broker.replicas.partitions]  # fmt: skip
        if left:
            invariants.violated("NothingLeft", f"{SIDE_TOPIC} is gone, and {left} have a replica")


def _all_claimed(cluster: SimulatedCluster, invariants: Invariants) -> None:
    if missing := invariants.old.all_claimed():
        invariants.violated("EventuallyAllClaimed", f"{missing}, 6 s after the last fault")


def _settled(cluster: SimulatedCluster, invariants: Invariants) -> None:
    if invariants.group is None:
        return
    end_ms = cluster.world.now_ms + GROUP_PATIENCE_MS
    while invariants.group.settled() and cluster.world.now_ms < end_ms:
        cluster.world.run_until(cluster.world.now_ms + 100)
    missing = invariants.group.settled()
    if missing:
        invariants.violated("EventuallySettled", f"{missing}, {GROUP_PATIENCE_MS} ms after all was well")


def _written_once(cluster: SimulatedCluster, invariants: Invariants) -> None:
    """An idempotent producer writes nothing twice, and in order."""
    for partition in range(cluster.settings.partitions if cluster.settings.clients.idempotent else 0):
        leader = cluster.leader(partition)
        replica = cluster.replica(leader, partition) if leader > 0 else None
        if replica is None:
            continue
        last: dict[bytes, int] = {}
        records = [record for _, batch in committed_batches(replica) for record in decode_records(batch)[1]]
        for record in records:
            if record.value is not None and record.value.startswith(b"once"):
                _, who, number = record.value.split()
                if int(number) <= last.get(who, 0):
                    invariants.violated(
                        "WrittenOnce", f"{record.value.decode()} is at {record.offset} after {last[who]}"
                    )
                last[who] = int(number)
