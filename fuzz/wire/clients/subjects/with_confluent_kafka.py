"""confluent-kafka, which is librdkafka: a producer and a group consumer."""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer

from highwater.fuzz.wire.clients.subjects import GROUP, RECORDS, TIMEOUT_S, TOPIC


def round_trip(bootstrap: str) -> int:
    """Return the number of consumed records."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": int(TIMEOUT_S * 1000)})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number)
    producer.flush(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    end, consumed = time.monotonic() + TIMEOUT_S, 0
    while consumed < RECORDS and time.monotonic() < end:
        message = consumer.poll(0.2)
        consumed += message is not None and message.error() is None
    consumer.close()
    return consumed


if __name__ == "__main__":
    try:
        sys.exit(0 if round_trip(sys.argv[1]) else 1)
    except KafkaException as error:
        sys.exit(f"{type(error).__name__}: {error}")
