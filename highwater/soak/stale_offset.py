"""Does the next coordinator know an acknowledged offset? `python -m highwater.soak.stale_offset [TARGET] [--rounds N]`.

A new leader of a partition knows the high watermark of its last fetch, which is often older than what its predecessor
acknowledged. Consumers of that partition get OFFSET_NOT_AVAILABLE until it has caught up (KIP-207). Here a group
commits an offset, the coordinator stops, and the next one is asked until it returns that offset. Prints what it
answered before, and what ListOffsets of the group's partition of `__consumer_offsets` said at the first wrong answer.
"""

import time
from collections import Counter
from typing import Annotated, Final

import typer

from highwater.conformance.broker import LATEST, Broker, Topic, advertised_versions, only
from highwater.conformance.cases.support.committed_offsets import (
    OFFSETS_TOPIC,
    commit,
    committed_topics,
    offsets_partition,
)
from highwater.conformance.cluster import Cluster, find_coordinator
from highwater.conformance.failures import TargetFailure
from highwater.conformance.targets import open_target
from highwater.reference.wire.errors import ErrorCode

COMMITTED: Final = 42
WAIT_S: Final = 30.0


def ask_until_known(cluster: Cluster, group: str, topic: Topic) -> tuple[Counter[int], str, float]:
    """Ask the next coordinator; return its wrong answers, what ListOffsets said at the first, and the seconds until.

    Answers with an error are no wrong ones. Raises TargetFailure if it does not know the offset in `WAIT_S`.
    """
    wrong: Counter[int] = Counter()
    listed = ""
    with cluster.coordinator(group) as coordinator:
        started = time.monotonic()
        while time.monotonic() - started < WAIT_S:
            found = only(only(committed_topics(coordinator, group, topic)).partitions)
            if found.committed_offset == COMMITTED:
                return wrong, listed, time.monotonic() - started
            if not found.error_code:
                listed = listed or _listed(cluster, coordinator, group)
                wrong[found.committed_offset] += 1
    raise TargetFailure(f"the next coordinator does not know offset {COMMITTED} after {WAIT_S:g} s")


def _listed(cluster: Cluster, coordinator: Broker, group: str) -> str:
    partition = offsets_partition(cluster, group)
    reply = coordinator.list_offset(partition, LATEST)
    return f"ListOffsets says {ErrorCode(reply.error_code).name}, offset {reply.offset}"


def _is_in_sync(cluster: Cluster, group: str) -> bool:
    """A leader that is alone in the ISR advances its high watermark at once, and has nothing to wait for."""
    index = offsets_partition(cluster, group).partition
    described = cluster.describe(OFFSETS_TOPIC)
    assert described is not None
    part = next(part for part in described.partitions if part.partition_index == index)
    return set(part.isr_nodes) == set(part.replica_nodes) and len(part.isr_nodes) > 2


def fail_over(cluster: Cluster, topic: Topic) -> str:
    """Commit, stop the coordinator, ask the next one, start the stopped one again; return the round as a line."""
    group = cluster.group()
    coordinator = cluster.coordinator(group)
    cluster.eventually("all replicas in the ISR", lambda: _is_in_sync(cluster, group), WAIT_S)
    with cluster.connect() as broker:
        stopped = find_coordinator(broker, group).node_id
    error = commit(coordinator, group, topic, COMMITTED)
    assert error == 0, f"the commit was refused: {ErrorCode(error).name}"
    cluster.stop(stopped)
    wrong, listed, seconds = ask_until_known(cluster, group, topic)
    cluster.start(stopped)
    if not wrong:
        return f"broker {stopped} stopped, the next coordinator returns {COMMITTED} at once"
    answers = ", ".join(f"{offset} in {times} replies without an error" for offset, times in sorted(wrong.items()))
    return f"broker {stopped} stopped, the next coordinator returns {answers} ({listed}); right after {seconds:.2f} s"


def main(
    target: Annotated[str, typer.Argument(help="A target whose nodes can be stopped: see highwater conform.")] = (
        "apache-kafka:3"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Failovers.")] = 10,
) -> None:
    """Commit an offset, stop the coordinator, and ask the next one for it, again and again."""
    with open_target(target) as launched:
        cluster = Cluster(launched, advertised_versions(launched.bootstrap.split(",")[0]))
        try:
            topic = cluster.create_topic(replicas=3)
            for number in range(1, rounds + 1):
                typer.echo(f"{target}: round {number}: {fail_over(cluster, topic)}")
        finally:
            cluster.close()


if __name__ == "__main__":
    typer.run(main)
