"""kafka-python: a producer and a group consumer."""

import sys
import time

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from highwater.fuzz.wire.clients.subjects import GROUP, RECORDS, TIMEOUT_S, TOPIC


def round_trip(bootstrap: str) -> int:
    """Return the number of consumed records."""
    timeout_ms = int(TIMEOUT_S * 1000)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, max_block_ms=timeout_ms, bootstrap_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms, delivery_timeout_ms=2 * timeout_ms,
    )  # fmt: skip
    for number in range(RECORDS):
        producer.send(TOPIC, b"%d" % number)
    producer.flush(timeout=TIMEOUT_S)
    producer.close(timeout=1)
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", session_timeout_ms=6_000,
        heartbeat_interval_ms=500, bootstrap_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms + 1_000,
    )  # fmt: skip
    end, consumed = time.monotonic() + TIMEOUT_S, 0
    while consumed < RECORDS and time.monotonic() < end:
        consumed += sum(map(len, consumer.poll(timeout_ms=200).values()))
    consumer.close(timeout_ms=1_000)
    return consumed


if __name__ == "__main__":
    try:
        sys.exit(0 if round_trip(sys.argv[1]) else 1)
    except KafkaError as error:
        sys.exit(f"{type(error).__name__}: {error}")
