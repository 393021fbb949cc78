"""Check the liveness invariants some time after the last fault."""

from highwater.fuzz.simulator.clients.load import GROUP, SIDE_TOPIC, Clients, Writer
from highwater.fuzz.simulator.clients.old_consumers import OLD_GROUP
from highwater.fuzz.simulator.cluster import COMPACTED, TOPIC, SimulatedCluster
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.invariants.contents import committed_batches
from highwater.fuzz.simulator.invariants.derived_files import wrong_files
from highwater.fuzz.simulator.invariants.sequences import out_of_order
from highwater.fuzz.simulator.invariants.transactions import (
    hanging_transactions,
    torn_transactions,
    undecided_markers,
    wrong_stable_offsets,
)
from highwater.fuzz.simulator.invariants.violations import About
from highwater.reference.controller.cluster import TOPICS, parse_topic
from highwater.reference.effects import broker_peer
from highwater.reference.wire.records import decode_records

PATIENCE_MS = 1_500
GROUP_PATIENCE_MS = 8_000


def check_progress(cluster: SimulatedCluster, invariants: Invariants, clients: Clients) -> None:
    """Check that producers, replication, reassignments, deletions and the group have made progress.

    Runs the world for at least 3 s of virtual time, times the pace; raises ViolationError.
    """
    world, patience_ms = cluster.world, PATIENCE_MS * cluster.settings.pace
    if cluster.settings.clients.old_consumers:
        _check_all_claimed(cluster, invariants)
        return
    _check_markers(cluster, invariants)
    before = [writer.acked for writer in clients.writers]
    read = {name: reader.acked for name, reader in clients.readers.items()}
    world.run_until(world.now_ms + patience_ms * (2 if cluster.settings.clients.transactional else 1))
    for writer, count in zip(clients.writers, before, strict=True):
        if writer.acked == count:
            name = next(host.name for host in world.hosts.values() if host.node is writer)
            invariants.violated(
                "LeaderCommits",
                f"no record of {name} was acknowledged in {patience_ms} ms, long after the last fault",
                _stuck(cluster, name),
            )
    _check_readers(clients, invariants, read)
    for writer in clients.writers:
        writer.stopped = True
    world.run_until(world.now_ms + patience_ms)
    _check_reassignment(cluster, invariants)
    for partition in range(cluster.settings.partitions):
        state, assigned = cluster.stored(partition), cluster.assigned(partition)
        if state is None or set(state.isr) != set(assigned):
            invariants.violated(
                "FollowersConverge",
                f"the ISR of {assigned} is {state.isr if state else None} long after the last fault",
                About(f"{TOPIC}-{partition}"),
            )
    _check_deletion(cluster, invariants)
    _check_group_is_stable(cluster, invariants)
    _check_written_once(cluster, invariants, clients)
    _check_sequences(cluster, invariants)
    compacted = {key: key[0] in COMPACTED for key in invariants.partitions}
    for message, about in wrong_files(cluster, compacted):
        invariants.violated("FilesMatchLog", message, about)
    for message in hanging_transactions(cluster) if cluster.settings.clients.transactional else ():
        invariants.violated("NoneHangs", message)
    for message in torn_transactions(cluster) if cluster.settings.clients.transactional else ():
        invariants.violated("TransactionsAreAtomic", message)
    for message in wrong_stable_offsets(cluster):
        invariants.violated("LastStableOffset", message)


def _stuck(cluster: SimulatedCluster, writer: str) -> About:
    """Return the first partition that commits nothing, else the writer."""
    for number in range(cluster.settings.partitions):
        leader = cluster.leader(number)
        replica = cluster.replica(leader, number) if leader > 0 else None
        if replica is None or replica.high_watermark < replica.log.log_end_offset:
            return About(f"{TOPIC}-{number}", replica.high_watermark if replica is not None else -1)
    return About(node=writer)


def _check_readers(clients: Clients, invariants: Invariants, before: dict[str, int]) -> None:
    """Check that each assigned reader has read something; of a group some member has, and all are in the group."""
    stuck = [name for name, reader in clients.readers.items() if reader.acked == before.get(name)]
    alone = [name for name in stuck if not name.startswith("group-reader")]
    members = [name for name in clients.readers if name.startswith("group-reader")]
    if alone or (members and set(members) <= set(stuck)):
        invariants.violated(
            "ReadersGoOn",
            f"{', '.join(alone or members)} read nothing for a while, long after the last fault",
            About(node=(alone or members)[0]),
        )


def _check_reassignment(cluster: SimulatedCluster, invariants: Invariants) -> None:
    topic = cluster.store().peek(f"{TOPICS}/{TOPIC}", lambda data, version: parse_topic(data))
    if topic is None or topic.adding or topic.removing:
        invariants.violated("MovedInTheEnd", f"a reassignment has not ended: {topic}", About(f"{TOPIC}-0"))
    for partition in range(cluster.settings.partitions):
        state, assigned = cluster.stored(partition), cluster.assigned(partition)
        about = About(f"{TOPIC}-{partition}")
        if state is not None and state.leader not in assigned:
            invariants.violated(
                "LeaderIsAssigned", f"leader {state.leader} is not one of the assigned replicas {assigned}", about
            )
        orphans = [b for b in cluster.broker_ids if b not in assigned and cluster.replica(b, partition) is not None]
        if orphans:
            message = f"brokers {orphans} have a replica of {about.partition}, and only {assigned} are assigned"
            invariants.violated("NoOrphans", message, about)


def _check_deletion(cluster: SimulatedCluster, invariants: Invariants) -> None:
    about = About(f"{SIDE_TOPIC}-0")
    if cluster.store().peek(f"/admin/delete_topics/{SIDE_TOPIC}", lambda data, version: True):
        invariants.violated("DeletedInTheEnd", f"the deletion of topic {SIDE_TOPIC} has not ended", about)
    if cluster.store().peek(f"{TOPICS}/{SIDE_TOPIC}", lambda data, version: True) is None:
        left = [b for b in cluster.broker_ids if (broker := cluster.broker(b)) is not None
                and (SIDE_TOPIC, 0) in broker.replicas.partitions and not _has_returned(cluster, b)]  # fmt: skip
        if left:
            message = f"topic {SIDE_TOPIC} is deleted, and brokers {left} have a replica"
            invariants.violated("NothingLeft", message, about)


def _has_returned(cluster: SimulatedCluster, broker: int) -> bool:
    """Return whether the disk has undone the deletion after the broker had reported it: it is not requested again."""
    disk = cluster.world.hosts[broker_peer(broker)].disk
    return any(path.startswith(f"{SIDE_TOPIC}-0/") for path in disk.returned)


def _check_all_claimed(cluster: SimulatedCluster, invariants: Invariants) -> None:
    if missing := invariants.old.all_claimed():
        invariants.violated("EventuallyAllClaimed", f"{missing}, 6 s after the last fault", About(entity=OLD_GROUP))


def _check_group_is_stable(cluster: SimulatedCluster, invariants: Invariants) -> None:
    if invariants.group is None:
        return
    end_ms = cluster.world.now_ms + GROUP_PATIENCE_MS * cluster.settings.pace
    while invariants.group.unsettled_reason() and cluster.world.now_ms < end_ms:
        cluster.world.run_until(cluster.world.now_ms + 100)
    missing = invariants.group.unsettled_reason()
    if missing:
        message = f"{missing}, {GROUP_PATIENCE_MS} ms after the other checks passed"
        invariants.violated("EventuallySettled", message, About(group=GROUP))


def _check_markers(cluster: SimulatedCluster, invariants: Invariants) -> None:
    """Check that each transaction that is decided now gets its markers (KIP-98)."""
    undecided, end_ms = undecided_markers(cluster), cluster.world.now_ms + PATIENCE_MS * cluster.settings.pace
    while undecided and cluster.world.now_ms < end_ms:
        cluster.world.run_until(cluster.world.now_ms + 100)
        undecided &= undecided_markers(cluster)
    for name, epoch, _ in undecided:
        invariants.violated("EveryMarkerIsWritten", f"{name} with epoch {epoch} has lacked a marker for 1.5 s")


def _check_sequences(cluster: SimulatedCluster, invariants: Invariants) -> None:
    """Check that the sequence numbers of each producer are in the log once and in order."""
    for partition in range(cluster.settings.partitions):
        leader = cluster.leader(partition)
        replica = cluster.replica(leader, partition) if leader > 0 else None
        for offset, message in out_of_order(committed_batches(replica)) if replica is not None else ():
            about = About(f"{TOPIC}-{partition}", offset)
            invariants.violated("InOrderOnce", f"{about.partition}: {message}", about)


def _check_written_once(cluster: SimulatedCluster, invariants: Invariants, clients: Clients) -> None:
    """Check that the records of each idempotent producer are in the log once and in order (KIP-98)."""
    refused = {value for writer in clients.writers if isinstance(writer, Writer) for value in writer.refused}
    for partition in range(cluster.settings.partitions if cluster.settings.clients.idempotent else 0):
        leader = cluster.leader(partition)
        replica = cluster.replica(leader, partition) if leader > 0 else None
        if replica is None:
            continue
        last: dict[bytes, int] = {}
        records = [record for _, batch in committed_batches(replica) for record in decode_records(batch)[1]]
        for record in records:
            about = About(f"{TOPIC}-{partition}", record.offset)
            if record.value is not None and record.value.startswith(b"once"):
                if record.value in refused:
                    invariants.violated(
                        "RepeatsAreAnswered",
                        f"{record.value.decode()} is stored at {record.offset}, and its batch was refused",
                        about,
                    )
                _, producer, number = record.value.split()
                if int(number) <= last.get(producer, 0):
                    invariants.violated(
                        "WrittenOnce",
                        f"{record.value.decode()} is at offset {record.offset} after number {last[producer]}",
                        about,
                    )
                last[producer] = int(number)
