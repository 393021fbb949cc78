"""Programs that read, transform and write exactly once while leaders are killed and brokers stand still.

Kafka Streams 4.3.1 (exactly_once_v2), and a consume-transform-produce loop on the Java client.
"""

import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from highwater.reference.drivers.cluster import Cluster
from highwater.reference.tests.clients.java_programs import (
    PATIENCE_S,
    committed_values,
    kill_leader,
    leader_of,
    running,
)
from highwater.reference.tests.test_clients import create

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600), pytest.mark.long]
PARTITIONS = 3
LINES = 1_200
WORDS = ("high", "water", "mark", "leader", "epoch", "commit")
COPIED = 6_000
THREADS = 3
PAUSE_S = 0.7
ENDED = re.compile(r"(\d+) committed, (\d+) aborted, (\d+) restarts")
SEEDS = range(int(os.environ.get("TRANSFORM_SEEDS", "1")))


def producer_of(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})


def test_words_are_counted_exactly_once_while_leaders_are_killed(
    shared_cluster: Cluster, bootstrap: str, tmp_path: Path
) -> None:
    source, output = (create(bootstrap, PARTITIONS) for _ in range(2))
    expected: Counter[str] = Counter()
    producer = producer_of(bootstrap)
    with running("WordCount", bootstrap, source, output, str(tmp_path), log=tmp_path / "log"):
        for number in range(LINES):
            words = [WORDS[(number * step) % len(WORDS)] for step in (1, 2, 5)]
            expected.update(words)
            producer.produce(source, " ".join(words).encode(), partition=number % PARTITIONS)
            producer.poll(0.01)
            if number in {LINES // 3, 2 * LINES // 3}:
                assert committed_values(bootstrap, output, number), "the program counts already"
                kill_leader(shared_cluster, bootstrap, source if number < LINES // 2 else output)
        assert producer.flush(PATIENCE_S) == 0
        counts = committed_values(bootstrap, output, sum(expected.values()))
    assert counts == {word: [str(n) for n in range(1, count + 1)] for word, count in expected.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_records_are_copied_exactly_once_through_aborts_rebalances_kills_and_pauses(
    shared_cluster: Cluster, bootstrap: str, tmp_path: Path, seed: int
) -> None:
    source, output = (create(bootstrap, PARTITIONS) for _ in range(2))
    producer, chance, log = producer_of(bootstrap), random.Random(seed), tmp_path / "log"
    with running("Transform", bootstrap, source, output, str(THREADS), str(seed), log=log):
        for number in range(COPIED):
            producer.produce(source, str(number).encode(), str(number).encode(), partition=number % PARTITIONS)
            producer.poll(0.004)
            if number % (COPIED // 12) == COPIED // 24:
                stand_still(shared_cluster, chance.choice([leader_of(bootstrap, source), leader_of(bootstrap, output)]))
            if number in {COPIED // 3, 2 * COPIED // 3}:
                kill_leader(shared_cluster, bootstrap, source if number < COPIED // 2 else output)
        assert producer.flush(PATIENCE_S) == 0
        copies = committed_values(bootstrap, output, COPIED)
    assert copies == {str(number): [str(number)] for number in range(COPIED)}, log.read_text()[-3_000:]
    committed, aborted, restarted = (sum(map(int, each)) for each in zip(*ENDED.findall(log.read_text()), strict=True))
    assert min(committed, aborted, restarted - THREADS) > 0, "the run has commits, aborts and rebalances"


def stand_still(cluster: Cluster, node: str) -> None:
    """Stop a broker for less than its session, as a slow disk does."""
    pid = cluster.nodes.pid(node)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    os.kill(pid, signal.SIGCONT)
