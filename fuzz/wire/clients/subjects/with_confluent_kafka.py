"""confluent-kafka, which is librdkafka: a producer and a group consumer."""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer

from highwater.fuzz.wire.clients.subjects import GROUP, PATIENCE_S, RECORDS, TOPIC


def round_trip(bootstrap: str) -> int:
    """The records consumed."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": int(PATIENCE_S * 1000)})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number)
    producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    end, seen = time.monotonic() + PATIENCE_S, 0
    while seen < RECORDS and time.monotonic() < end:
        message = consumer.poll(0.2)
        seen += message is not None and message.error() is None
    consumer.close()
    return seen


if __name__ == "__main__":
    try:
        sys.exit(0 if round_trip(sys.argv[1]) else 1)
    except KafkaException as error:
        sys.exit(f"{type(error).__name__}: {error}")
