"""How long partitions are without a leader when a broker ends: `python -m highwater.bench failover`.

Each kind of end is repeated on both brokers in turn, on clusters of three with a session time-out of `SESSION_MS`. The
picture has a dot for each time, `results/failover.svg`.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from highwater.bench.brokers import (
    APACHE,
    FAILOVER,
    PROMPT,
    REFERENCE,
    ROUNDS,
    SESSION_MS,
    Brokers,
    Sample,
    apache_cluster,
    bootstrap,
    create,
    new_leader,
    partitions_of,
    reference_cluster,
)
from highwater.bench.picture import COLOURS, Row, draw_rows
from highwater.errors import UsageError

PICTURE: Final = Path("results/failover.svg")
PARTITIONS: Final = 12
PAUSE_S: Final = SESSION_MS / 3000


def new_leaders_of_a_pause(cluster: Brokers) -> float:
    """Stop the process of a leader for less than its session; return how many of its partitions get another leader."""
    admin, node = AdminClient({"bootstrap.servers": bootstrap(cluster), **PROMPT}), min(cluster.addresses)
    before = {part.id for part in partitions_of(admin, FAILOVER) if part.leader == node}
    os.kill(cluster.pid(node), signal.SIGSTOP)
    time.sleep(PAUSE_S)
    os.kill(cluster.pid(node), signal.SIGCONT)
    time.sleep(PAUSE_S)
    return float(len(before - {part.id for part in partitions_of(admin, FAILOVER) if part.leader == node}))


ENDS: Final[dict[str, Callable[[Brokers], float]]] = {
    "SIGTERM": lambda cluster: new_leader(cluster, cluster.stop_node),
    f"SIGKILL, session {SESSION_MS // 1000} s": lambda cluster: new_leader(cluster, cluster.kill_node),
    f"SIGSTOP for {PAUSE_S:.0f} s": new_leaders_of_a_pause,
}


def measure() -> Iterator[str]:
    """Yield a line for each kind of end; draw the picture at the end."""
    samples: dict[tuple[str, str], Sample] = {}
    with ExitStack() as stack:
        clusters = {REFERENCE: stack.enter_context(reference_cluster(3))}
        try:
            clusters[APACHE] = stack.enter_context(apache_cluster(3))
        except UsageError as missing:
            yield f"(no Apache Kafka here: {missing})"
        for cluster in clusters.values():
            create(cluster, FAILOVER, PARTITIONS, 3)
        for end in ENDS:
            for name in clusters:
                samples[end, name] = Sample()
            for _ in range(ROUNDS):
                for name, cluster in clusters.items():
                    _take(samples[end, name], ENDS[end], cluster)
            unit = "leaders moved" if "SIGSTOP" in end else "s"
            found = ", ".join(f"{name} {samples[end, name]}" for name in clusters)
            yield f"{end}: {found} {unit}"
    yield f"picture: {draw({key: sample.values for key, sample in samples.items() if 'SIGSTOP' not in key[0]})}"


def _take(sample: Sample, end: Callable[[Brokers], float], cluster: Brokers) -> None:
    if not sample.fault:
        try:
            sample.values.append(end(cluster))
        except TimeoutError as error:
            sample.fault = str(error)


def draw(times: Mapping[tuple[str, str], list[float]]) -> Path:
    """Write a picture with a row for each kind of end and broker, and a dot for each time in s."""
    rows = [Row(f"{end}: {name}", values, COLOURS[name]) for (end, name), values in times.items()]
    return draw_rows(PICTURE, "Time until another broker leads all partitions of the one that ended", rows, " s")
