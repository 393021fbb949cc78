"""Example clients to record: a compacted topic, or consumers that fetch from the replica in their rack.

Fetching from replicas is KIP-392. The clients connect to $BOOTSTRAP. SIGTERM or --seconds ends writing; then the topic
is read from its start.

    highwater chaos apache-kafka:3 --schedule fuzz/schedules/compaction.json --workload none \\
        --clients 'python examples/clients/racks_and_keys.py compaction'
    highwater chaos apache-kafka:3 --schedule fuzz/schedules/follower_reads.json --workload none \\
        --clients 'python examples/clients/racks_and_keys.py follower-reads'
"""

import argparse
import os
from collections.abc import Callable
from typing import Any

from two_libraries import FLUSH_S, PARTITIONS, make_topics, paced, quiet, read_all, stop, work_together

LATEST, FAR = "latest", "far"
COMPACTED = {"cleanup_policy": "compact", "segment_ms": "2000", "min_cleanable_dirty_ratio": "0.01",
             "delete_retention_ms": "1000"}  # fmt: skip
KEYS, TOMBSTONE_EVERY = 12, 9
READERS = {"a": "read_committed", "b": "read_uncommitted", "c": "read_committed"}  # by rack


def write_keys(bootstrap: str, rate: int) -> None:
    """Write many values for few keys, with a tombstone for every ninth record."""
    producer = _producer(bootstrap)
    for number in paced(rate):
        value = None if number % TOMBSTONE_EVERY == 0 else b"value %d" % number
        producer.produce(LATEST, value, b"key %d" % (number % KEYS), partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(FLUSH_S)


def write_plainly(bootstrap: str, rate: int) -> None:
    producer = _producer(bootstrap)
    for number in paced(rate):
        producer.produce(FAR, b"plain %d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(FLUSH_S)


def write_in_transactions(bootstrap: str, rate: int) -> None:
    """Write transactions of three records; abort every fourth transaction."""
    from confluent_kafka import KafkaException

    def new_producer() -> Any:
        producer = _producer(bootstrap, **{"transactional.id": "far", "transaction.timeout.ms": 20_000})
        producer.init_transactions(FLUSH_S)
        return producer

    producer = new_producer()
    for number in paced(rate):
        try:
            producer.begin_transaction()
            for part in range(3):
                producer.produce(FAR, b"part %d of %d" % (part, number), partition=(number + part) % PARTITIONS)
            producer.flush(FLUSH_S)
            end = producer.commit_transaction if number % 4 else producer.abort_transaction
            end(FLUSH_S)
        except KafkaException:
            producer = new_producer()


def read_again_and_again(bootstrap: str) -> None:
    """Read repeatedly from the start to the current end."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    parts = [TopicPartition(LATEST, number, 0) for number in range(PARTITIONS)]
    consumer = Consumer(_reading(bootstrap), logger=quiet)
    while not stop.is_set():
        try:
            ends = [consumer.get_watermark_offsets(part, 10)[1] for part in parts]
        except KafkaException:
            continue
        consumer.assign(parts)
        while not stop.is_set() and any(
            here.offset < end for here, end in zip(consumer.position(parts), ends, strict=True) if end
        ):
            consumer.consume(1_000, 0.2)
        stop.wait(1)
    consumer.close()


def read_near(bootstrap: str, rack: str, isolation: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    own = {"client.rack": rack, "isolation.level": isolation, "fetch.min.bytes": 1_000}
    consumer = Consumer(_reading(bootstrap, **own), logger=quiet)
    consumer.assign([TopicPartition(FAR, number, 0) for number in range(PARTITIONS)])
    while not stop.is_set():
        consumer.consume(500, 0.1)
    consumer.close()


def _producer(bootstrap: str, **more: Any) -> Any:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20} | more
    return Producer(settings, logger=quiet)


def _reading(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False} | more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compaction", "follower-reads"))
    parser.add_argument("--rate", type=int, default=40, help="records a second")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    arguments = parser.parse_args()
    bootstrap = os.environ["BOOTSTRAP"]
    work: list[tuple[Callable[..., None], tuple[Any, ...]]]
    if arguments.what == "compaction":
        topic = LATEST
        make_topics(bootstrap, topic, **COMPACTED)
        work = [(write_keys, (bootstrap, arguments.rate)), *[(read_again_and_again, (bootstrap,))] * 2]
    else:
        topic = FAR
        make_topics(bootstrap, topic)
        work = [(read_near, (bootstrap, rack, isolation)) for rack, isolation in READERS.items()]
        work += [
            (write_plainly, (bootstrap, arguments.rate)),
            (write_in_transactions, (bootstrap, max(1, arguments.rate // 10))),
        ]
    work_together(work, arguments.seconds)
    print(f"Read to the end: {read_all(bootstrap, topic):,} records", flush=True)


if __name__ == "__main__":
    main()
