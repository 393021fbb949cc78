"""What partitions cost a cluster of three reference brokers: `python -m highwater.bench partitions`.

Throughput with acks=all while more and more partitions exist beside those that are loaded, their creation, and
processor and memory of brokers that have them and are idle. `highwater bench` compares brokers with each other.
"""

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from highwater.bench.picture import COLOURS, REFERENCE, Row, draw_rows
from highwater.experiments.targets import Bench, open_bench

ROUNDS: Final = 5
RECORDS: Final = 50_000
RECORD_BYTES: Final = 100
CURVE: Final = (100, 1_000, 2_000)  # partitions of the cluster
IDLE_S: Final = 10.0
WAIT_S: Final = 120.0
PICTURE: Final = Path("results/partitions.svg")
CLUSTER: Final = "reference:3"
LOAD: Final = "load"


def produce(bench: Bench, batch_bytes: int) -> float:
    """Return acknowledged records a second, with acks=all; raises TimeoutError."""
    settings = {"acks": "all", "batch.size": batch_bytes, "queue.buffering.max.messages": 2 * RECORDS}
    producer, failed = Producer({**bench.client_settings, **settings}), []
    started = time.perf_counter()
    for number in range(RECORDS):
        producer.produce(
            LOAD, bytes(RECORD_BYTES), on_delivery=lambda error, _: failed.append(error) if error else None
        )
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(WAIT_S) or failed:
        raise TimeoutError(f"records were not acknowledged: {failed[:1]}")
    return RECORDS / (time.perf_counter() - started)


def curve() -> Iterator[str]:
    """Yield what a cluster of three reference brokers does with more and more partitions, and what they cost idle.

    The picture has a dot for each round: its rate as a share of the median with the fewest partitions.
    """
    rates: dict[int, list[float]] = {}
    with open_bench(CLUSTER) as bench:
        bench.create_topic(LOAD, 12, 3)
        produce(bench, 1_000_000)
        exist = 12
        for partitions in CURVE:
            started = time.perf_counter()
            bench.create_topic(f"idle-{partitions}", partitions - exist, 3)
            created_s, added, exist = time.perf_counter() - started, partitions - exist, partitions
            rates[partitions] = found = sorted(produce(bench, 1_000) for _ in range(ROUNDS))
            share = statistics.median(found) / statistics.median(rates[CURVE[0]])
            yield (
                f"{partitions:6,} partitions: {added:,} more created in {created_s:.1f} s; acks=all, batches of 1 KB: "
                f"{statistics.median(found):,.0f} records/s ({found[0]:,.0f} to {found[-1]:,.0f}), "
                f"{share:.2f} of the first row"
            )
        busy = {node: _busy_s(bench.cluster.pid(node)) for node in bench.addresses}
        time.sleep(IDLE_S)
        shares = [100 * (_busy_s(bench.cluster.pid(node)) - before) / IDLE_S for node, before in busy.items()]
        used = [resident_mb(bench.cluster.pid(node)) for node in bench.addresses]
        yield f"idle with {exist:,} partitions: at most {max(shares):.1f} % of a core and {max(used):.0f} MB each"
        yield f"all {CURVE[-1]:,} at once: created in {_created_s():.1f} s"
    yield f"picture: {_draw(rates)}"


def _created_s() -> float:
    """Return the seconds in which a new cluster of three creates a topic with the most partitions, three replicas."""
    with open_bench(CLUSTER) as bench:
        bench.create_topic(LOAD, 1, 3)  # the first request waits for the controller
        started = time.perf_counter()
        bench.create_topic("many", CURVE[-1], 3)
        return time.perf_counter() - started


def _draw(rates: Mapping[int, list[float]]) -> Path:
    first = statistics.median(rates[CURVE[0]])
    rows = [
        Row(f"{partitions:,} partitions", [rate / first for rate in found], COLOURS[REFERENCE])
        for partitions, found in rates.items()
    ]
    return draw_rows(PICTURE, f"Records/s, acks=all, as a share of the rate with {CURVE[0]} partitions", rows)


def _busy_s(pid: int) -> float:
    """Return the processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    line = next(row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
