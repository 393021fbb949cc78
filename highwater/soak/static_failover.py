"""Does a static member that was replaced return after a failover? `python -m highwater.soak.static_failover [TARGET]`.

The model says so (spec/eager_rebalance/README.md, "What does not hold"): the id of the new process is stored only with
the next generation.  Here three static members form a stable group; one of them starts a rebalance, another one starts
again while the third has not joined, and the coordinator is killed.  Prints what the new coordinator replies to the
process that was replaced.
"""

from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from highwater.conformance.broker import Broker, Topic, advertised_versions
from highwater.conformance.cases.support.committed_offsets import commit
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.cluster import Cluster, find_coordinator
from highwater.conformance.failures import Disconnected
from highwater.conformance.targets import open_target
from highwater.reference.wire.errors import ErrorCode

INSTANCES: Final = ("a", "b", "c")
REPLACED: Final = INSTANCES[-1]
TAKEOVER_S: Final = 60.0
PATIENT: Final[dict[str, Any]] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 120_000}


def stable_group(driver: GroupDriver) -> list[Member]:
    """Return three static members of a stable group; the first is its leader."""
    members = [driver.stable_member(instance=INSTANCES[0], **PATIENT)]
    for instance in INSTANCES[1:]:
        newcomer = driver.send_join(instance=instance, **PATIENT)
        for member in members:
            member.await_rebalance()
            member.send_rejoin()
        members.append(newcomer)
        for member in members:
            member.receive_join()
        assignments = {member.member_id: member.member_id.encode() for member in members}
        leader = next(member for member in members if member.is_leader)
        leader.sync(assignments)
        for member in members:
            if member is not leader:
                member.sync()
    assert members[0].is_leader
    return members


def next_coordinator(driver: GroupDriver) -> Broker | None:
    """Return a connection to the coordinator, or None while it still is the broker that was killed."""
    with suppress(Disconnected):
        return driver.connect()
    return None


def replace_and_fail_over(cluster: Cluster, topic: Topic) -> list[str]:
    """Return the steps and what was replied, one line each."""
    driver = GroupDriver(cluster, cluster.group())
    leader, _, replaced = stable_group(driver)
    assert not replaced.is_leader
    leader.send_rejoin(metadata=b"changed")
    driver.send_join(instance=REPLACED, **PATIENT)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    cluster.eventually("FENCED_INSTANCE_ID", lambda: replaced.heartbeat_error() == fenced)
    lines = [f"replaced while the group prepares a rebalance: a heartbeat of the old id gets {fenced.name}"]
    with cluster.connect() as broker:
        coordinator = find_coordinator(broker, driver.group).node_id
    cluster.kill(coordinator)
    replaced.broker = cluster.eventually("another coordinator", lambda: next_coordinator(driver), TAKEOVER_S)
    lines.append(f"broker {coordinator}, the coordinator, is killed; another one takes over")
    beat = ErrorCode(replaced.heartbeat_error())
    stored = commit(
        replaced.broker, driver.group, topic, 1, member_id=replaced.member_id, generation=replaced.generation,
        instance=REPLACED,
    )  # fmt: skip
    lines.append(f"a heartbeat of the old id gets {beat.name}, its commit {ErrorCode(stored).name}")
    return lines


def main(
    target: Annotated[str, typer.Argument(help="A target that can be killed: see highwater conform.")] = "reference:3",
) -> None:
    """Replace a static member during a rebalance, kill the coordinator, and ask as the replaced process."""
    with open_target(target) as launched:
        cluster = Cluster(launched, advertised_versions(launched.bootstrap.split(",")[0]))
        try:
            for line in replace_and_fail_over(cluster, cluster.create_topic()):
                typer.echo(f"{target}: {line}")
        finally:
            cluster.close()


if __name__ == "__main__":
    typer.run(main)
