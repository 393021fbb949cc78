"""Example clients: groups whose members join and leave again, one group for each assignor.

The clients connect to $BOOTSTRAP. SIGTERM or --seconds ends them. Afterwards `__consumer_offsets` has a record of each
generation that was stored, which `highwater spec trace --from-kafka` checks.

    highwater chaos apache-kafka:4.3.1:3 --keep --seed 5 \\
        --clients 'python examples/clients/rebalances.py --group eager=range --group moved=cooperative-sticky'
"""

import argparse
import contextlib
import os
import random
import time
from typing import Any

from two_libraries import PARTITIONS, REPLICAS, make_topics, paced, quiet, read_all, stop, work_together

TOPIC, MEMBERS = "rebalanced", 3
NEW_PROTOCOL = "consumer"
STAY_S = (1.0, 5.0)


def write(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20}, logger=quiet)
    for number in paced(50):
        with contextlib.suppress(BufferError):  # the send queue is full while the cluster has no leader
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(10)


def be_member(bootstrap: str, group: str, assignor: str, number: int) -> None:
    """Join, stay for some seconds, and leave, again and again; a member of the group `static` keeps its instance id."""
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
    }  # fmt: skip
    classic = {"partition.assignment.strategy": assignor, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    settings |= {"group.protocol": "consumer"} if assignor == NEW_PROTOCOL else classic
    if group == "static":
        settings["group.instance.id"] = f"{group}-{number}"
    draw = random.Random(f"{group} {number}")
    while not stop.is_set():
        consumer = Consumer(settings, logger=quiet)
        consumer.subscribe([TOPIC])
        until = time.monotonic() + draw.uniform(*STAY_S) * (1 + number)
        while time.monotonic() < until and not stop.is_set():
            consumer.consume(100, 0.1)
        consumer.close()
        stop.wait(draw.uniform(0.2, 1.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", action="append", metavar="NAME=ASSIGNOR", help="repeat it; consumer: KIP-848")
    parser.add_argument("--replicas", type=int, default=REPLICAS, help="replicas of the topic")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    options = parser.parse_args()
    bootstrap = os.environ["BOOTSTRAP"]
    groups = [group.partition("=") for group in options.group or ["eager=range"]]
    make_topics(bootstrap, TOPIC, replicas=options.replicas)
    members = [
        (be_member, (bootstrap, name, assignor, number)) for name, _, assignor in groups for number in range(MEMBERS)
    ]
    work_together([(write, (bootstrap,)), *members], options.seconds)
    print(f"Read to the end: {read_all(bootstrap, TOPIC):,} records", flush=True)


if __name__ == "__main__":
    main()
