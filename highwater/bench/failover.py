"""How long partitions are without a leader when a broker ends: `python -m highwater.bench failover`.

Each kind of end is repeated on both brokers in turn, on clusters of three with a session time-out of `SESSION_MS`. The
picture has a dot for each time, `results/failover.svg`.
"""

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import ElectionType, KafkaException

from highwater.bench.picture import APACHE, COLOURS, REFERENCE, Row, draw_rows
from highwater.errors import UsageError
from highwater.experiments.targets import SESSION_MS, Bench, open_bench

ROUNDS: Final = 5
PICTURE: Final = Path("results/failover.svg")
TOPIC: Final = "failover"
PARTITIONS: Final = 12
PAUSE_S: Final = SESSION_MS / 3000
WAIT_S: Final = 120.0
POLL_S: Final = 0.02
CLUSTERS: Final = {REFERENCE: "reference:3", APACHE: "apache-kafka:3"}


@dataclass(slots=True)
class Sample:
    """The values of one row and one cluster; `fault` is why there are none."""

    values: list[float] = field(default_factory=list)
    fault: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values) if self.values else 0.0

    def __str__(self) -> str:
        if not self.values:
            return "-"
        return f"{self.median:,.2f} ({min(self.values):,.2f} to {max(self.values):,.2f})"


def new_leader(bench: Bench, end: Callable[[int], None]) -> float:
    """Return seconds from the end of a leader to a new leader for all it led; TimeoutError if there is none.

    The leader is not the controller of Apache Kafka.
    """
    node = max(bench.addresses)
    if not bench.cluster.pid(node):  # it was ended in the round before
        bench.cluster.start_node(node)
    _await(lambda: node in _leaders(bench).values() or _prefer(bench))
    started = time.perf_counter()
    end(node)
    _await(lambda: not {node, -1} & set(_leaders(bench).values()))
    return time.perf_counter() - started


def _await(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("the brokers did not reach the expected state")
        time.sleep(POLL_S)


def _leaders(bench: Bench) -> dict[int, int]:
    """Return the leader of each partition; -1 for none."""
    return {part.id: part.leader for part in bench.admin.list_topics(TOPIC, 10).topics[TOPIC].partitions.values()}


def _prefer(bench: Bench) -> bool:
    """Ask that preferred replicas lead; return False, since that takes a while."""
    futures = bench.admin.elect_leaders(ElectionType.PREFERRED, None)
    with suppress(KafkaException):
        futures.result(WAIT_S)
    return False


def new_leaders_of_a_pause(bench: Bench) -> float:
    """Stop the process of a leader for less than its session; return how many of its partitions get another leader."""
    node = max(bench.addresses)
    if not bench.cluster.pid(node):
        bench.cluster.start_node(node)
    _await(lambda: node in _leaders(bench).values() or _prefer(bench))
    before = {part for part, leader in _leaders(bench).items() if leader == node}
    os.kill(bench.cluster.pid(node), signal.SIGSTOP)
    time.sleep(PAUSE_S)
    os.kill(bench.cluster.pid(node), signal.SIGCONT)
    time.sleep(PAUSE_S)
    return float(len(before - {part for part, leader in _leaders(bench).items() if leader == node}))


ENDS: Final[dict[str, Callable[[Bench], float]]] = {
    "SIGTERM": lambda bench: new_leader(bench, bench.cluster.stop_node),
    f"SIGKILL, session {SESSION_MS // 1000} s": lambda bench: new_leader(bench, bench.cluster.kill_node),
    f"SIGSTOP for {PAUSE_S:.0f} s": new_leaders_of_a_pause,
}


def measure() -> Iterator[str]:
    """Yield a line for each kind of end; draw the picture at the end."""
    samples: dict[tuple[str, str], Sample] = {}
    with ExitStack() as stack:
        clusters: dict[str, Bench] = {}
        for name, target in CLUSTERS.items():
            try:
                clusters[name] = stack.enter_context(open_bench(target))
            except UsageError as missing:
                yield f"(no {name} here: {missing})"
        for bench in clusters.values():
            bench.create_topic(TOPIC, PARTITIONS, 3)
        for end in ENDS:
            for name in clusters:
                samples[end, name] = Sample()
            for _ in range(ROUNDS):
                for name, bench in clusters.items():
                    _take(samples[end, name], ENDS[end], bench)
            unit = "leaders moved" if "SIGSTOP" in end else "s"
            found = ", ".join(f"{name} {samples[end, name]}" for name in clusters)
            yield f"{end}: {found} {unit}"
    yield f"picture: {draw({key: sample.values for key, sample in samples.items() if 'SIGSTOP' not in key[0]})}"


def _take(sample: Sample, end: Callable[[Bench], float], bench: Bench) -> None:
    if not sample.fault:
        try:
            sample.values.append(end(bench))
        except TimeoutError as error:
            sample.fault = str(error)


def draw(times: Mapping[tuple[str, str], list[float]]) -> Path:
    """Write a picture with a row for each kind of end and broker, and a dot for each time in s."""
    rows = [Row(f"{end}: {name}", values, COLOURS[name]) for (end, name), values in times.items()]
    return draw_rows(PICTURE, "Time until another broker leads all partitions of the one that ended", rows, " s")
