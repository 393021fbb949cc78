"""Does a commit reach a partition that has no leader for a while? `python -m highwater.soak.torn_transaction [TARGET]`.

A transaction writes to two partitions, each on one broker. One of these brokers stops, the transaction is committed,
and the broker starts again. The commit was acknowledged, so readers of both partitions must get its record: it takes
effect in all partitions or in none (KIP-98). Prints what each side says 15 seconds later.
"""

import time
from typing import Annotated, Any, Final

import typer

from highwater.conformance.broker import Broker, Topic, advertised_versions, only
from highwater.conformance.cases.support.transactions import (
    Transactional,
    fetch_committed,
    find_transaction_coordinator,
)
from highwater.conformance.cluster import Cluster
from highwater.conformance.targets import open_target
from highwater.reference.wire.messages.transactions import DescribeTransactionsRequest

WAIT_S: Final = 15.0
WRITTEN: Final = 1


def shown(leader: Broker, topic: Topic) -> str:
    part = fetch_committed(leader, topic)
    verb = "get" if part.last_stable_offset >= WRITTEN else "do not get"
    return (
        f"readers {verb} the record: last stable offset {part.last_stable_offset}, high watermark {part.high_watermark}"
    )


def described(producer: Transactional) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=(producer.id,))
    return only(producer.coordinator.call(request).transaction_states)


def commit_without_a_leader(cluster: Cluster) -> list[str]:
    """Return the steps and what was seen, one line each."""
    producer = Transactional.initialize(cluster)
    with cluster.connect() as broker:
        lasting = find_transaction_coordinator(broker, producer.id).node_id
    stopped = max(node for node in cluster.target.addresses if node != lasting)
    here, there = (cluster.create_topic(assignment=[node]) for node in (lasting, stopped))
    producer.begin(here, there)
    for topic in (here, there):
        producer.write(topic, 0)
    cluster.stop(stopped)
    producer.end(commit=True)
    lines = [f"broker {stopped}, the only replica of one of two partitions, is stopped; the commit is acknowledged"]
    time.sleep(WAIT_S)  # the coordinator may write the marker later, when the partition has a leader
    lines.append(f"after {WAIT_S:g} s the coordinator says {described(producer).transaction_state}")
    cluster.start(stopped)
    time.sleep(WAIT_S)
    for topic in (here, there):
        with cluster.leader(cluster.topic(topic.name)) as leader:
            lines.append(f"partition of broker {topic.leader_id}: {shown(leader, topic)}")
    return lines


def main(
    target: Annotated[str, typer.Argument(help="A target whose nodes can be stopped: see highwater conform.")] = (
        "reference:3"
    ),
) -> None:
    """Commit a transaction while one of its partitions has no leader."""
    with open_target(target) as launched:
        cluster = Cluster(launched, advertised_versions(launched.bootstrap.split(",")[0]))
        try:
            for line in commit_without_a_leader(cluster):
                typer.echo(f"{target}: {line}")
        finally:
            cluster.close()


if __name__ == "__main__":
    typer.run(main)
