"""Produce to Apache Kafka directly and through `highwater proxy`, in turn, with lines that match nothing.

Client, proxy and broker share the machine, so that on two cores the proxy also takes time from the other two.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer

from highwater.conformance.targets.apache_kafka import apache_kafka

ROUNDS: Final = 5
RECORDS: Final = 100_000
RECORD_BYTES: Final = 1_000
BATCHES: Final = (16_384, 1_000_000)
LINES: Final = ("EndTxn transaction=none: drop", "Heartbeat group=none: close")


@contextmanager
def proxy_before(bootstrap: str) -> Iterator[str]:
    """Run the command before a cluster, and return where it listens."""
    options = [option for line in LINES for option in ("--fault", line)]
    command = [sys.executable, "-m", "highwater", "proxy", "--listen", "127.0.0.1:0", "--upstream", bootstrap, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[3].rstrip(";")
        finally:
            process.terminate()


def megabytes_per_second(bootstrap: str, topic: str, batch_bytes: int) -> float:
    """Produce with acks=all, and return the rate."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": batch_bytes, "linger.ms": 5, "acks": "all"})
    value, started = b"x" * RECORD_BYTES, time.perf_counter()
    for _ in range(RECORDS):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    return RECORDS * RECORD_BYTES / 1e6 / (time.perf_counter() - started)


def measure() -> Iterator[str]:
    """Yield a line for each batch size: both rates, and the median of the ratios."""
    with apache_kafka(1) as cluster, proxy_before(cluster.bootstrap) as proxied:
        for batch_bytes in BATCHES:
            pairs = [
                (
                    megabytes_per_second(cluster.bootstrap, "loaded", batch_bytes),
                    megabytes_per_second(proxied, "loaded", batch_bytes),
                )
                for _ in range(ROUNDS + 1)
            ][1:]  # the first round warms up
            direct, through = (statistics.median(rates) for rates in zip(*pairs, strict=True))
            ratios = sorted(after / before for before, after in pairs)
            yield (
                f"batches of {batch_bytes:,} bytes: {through:,.0f} MB/s through the proxy, {direct:,.0f} MB/s without, "
                f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            )
