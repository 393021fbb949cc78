"""Example clients to record: confluent-kafka and kafka-python, each with its own topic and group.

The clients connect to $BOOTSTRAP. SIGTERM or --seconds ends writing; then the topics are read from their start.

    highwater chaos apache-kafka:3 --workload none --clients 'python examples/clients/two_libraries.py'
"""

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

ORDERS, INVOICES = "orders", "invoices"
PARTITIONS, REPLICAS = 4, 3
FLUSH_S, READ_S = 60.0, 400.0
stop = threading.Event()
quiet = logging.getLogger("quiet")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


def paced(rate: int) -> Iterator[int]:
    """Yield numbers from 0 on at `rate` a second until `stop` is set."""
    started, number = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - started) * rate)
        for _ in range(min(due - number, rate)):
            yield number
            number += 1
        number = max(number, due - rate)  # skip what a slow cluster delayed by more than a second
        stop.wait(0.02)


def make_topics(bootstrap: str, *topics: str, replicas: int = REPLICAS, **settings: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"min.insync.replicas": str(min(2, replicas))} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    futures = admin.create_topics([NewTopic(topic, PARTITIONS, replicas, config=config) for topic in topics])
    for future in futures.values():
        try:
            future.result(60)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise


def write_with_confluent(bootstrap: str, rate: int) -> None:
    from confluent_kafka import KafkaException, Producer

    settings = {
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "delivery.timeout.ms": 60_000,
    }  # fmt: skip
    producer = Producer(settings, logger=quiet)
    for number in paced(rate):
        try:
            producer.produce(ORDERS, b"order %d" % number, partition=number % PARTITIONS)
        except BufferError:  # the send queue is full
            producer.poll(0.1)
        except KafkaException:  # a fatal error ends an idempotent producer
            producer = Producer(settings, logger=quiet)
        producer.poll(0)
    producer.flush(FLUSH_S)


def write_with_kafka_python(bootstrap: str, rate: int) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    def make() -> Any:
        return KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=20)

    producer = make()
    for number in paced(rate):
        try:
            producer.send(INVOICES, b"invoice %d" % number, partition=number % PARTITIONS)
        except KafkaError:
            producer.close(timeout=1)
            producer = make()
    with contextlib.suppress(KafkaError):  # records not sent by then have an unknown outcome
        producer.flush(FLUSH_S)
        producer.close(timeout=1)


def read_with_confluent(bootstrap: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": bootstrap, "group.id": "confluent", "group.protocol": protocol,
        "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1_000,
    }  # fmt: skip
    consumers = [Consumer(settings, logger=quiet) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe([ORDERS])
    while not stop.is_set():
        for consumer in consumers:
            consumer.consume(500, 0.1)
    for consumer in consumers:
        consumer.close()


def read_with_kafka_python(bootstrap: str) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        INVOICES, bootstrap_servers=bootstrap, group_id="kafka-python", auto_offset_reset="earliest",
        auto_commit_interval_ms=1_000,
    )  # fmt: skip
    while not stop.is_set():
        try:
            consumer.poll(timeout_ms=200)
        except KafkaError:
            continue
    consumer.close(autocommit=False)


def read_all(bootstrap: str, *topics: str) -> int:
    """Read the topics from start to end, so that the recording shows lost records."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "last", "enable.auto.commit": False})
    parts = [TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(part, 30)[1] for part in parts]
    consumer.assign(parts)
    until, read = time.monotonic() + READ_S, 0
    while any(here.offset < end for here, end in zip(consumer.position(parts), ends, strict=True) if end):
        if time.monotonic() > until:
            sys.exit("The topics could not be read to their ends in time.")
        read += len(consumer.consume(5_000, 0.5))
    consumer.close()
    return read


def work_together(work: list[tuple[Callable[..., None], tuple[Any, ...]]], seconds: float | None) -> None:
    """Run functions in threads until SIGTERM, or for `seconds`."""
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threads = [threading.Thread(target=function, args=args, daemon=True) for function, args in work]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join(FLUSH_S + 30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=100, help="records a second, by confluent-kafka")
    parser.add_argument("--invoices", type=int, default=100, help="records a second, by kafka-python")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument(
        "--protocol", choices=("classic", "consumer"), default="classic", help="group protocol of confluent-kafka"
    )
    arguments = parser.parse_args()
    bootstrap = os.environ["BOOTSTRAP"]
    make_topics(bootstrap, ORDERS, INVOICES)
    work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (write_with_confluent, (bootstrap, arguments.orders)),
        (write_with_kafka_python, (bootstrap, arguments.invoices)),
        (read_with_confluent, (bootstrap, arguments.protocol)),
        (read_with_kafka_python, (bootstrap,)),
    ]
    work_together(work, arguments.seconds)
    print(f"Read to the end: {read_all(bootstrap, ORDERS, INVOICES):,} records", flush=True)


if __name__ == "__main__":
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore", DeprecationWarning)
    main()
