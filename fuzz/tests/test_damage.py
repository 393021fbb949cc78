"""Damaged data in the simulator: what clients send, and what a disk returns for partitions of every kind."""

import pytest

from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.cluster import Focus, Load, Settings
from highwater.fuzz.simulator.search import SeedResult, run_seed
from highwater.reference.replication import produce, validation
from highwater.reference.wire.record_scan import Scan

INTRUDER = Load(intruder=True, members=("range",) * 2)
GROUPS_AND_TRANSACTIONS = Load(members=("range",) * 2, transactional=1)


def run(seed: int, load: Load, *kinds: str) -> SeedResult:
    return run_seed(seed, Settings(swarm=True, load=load, focus=Focus(kinds=kinds)))


@pytest.mark.parametrize("seed", range(3))
def test_no_broker_stores_what_an_intruder_writes(seed: int) -> None:
    result = run(seed, INTRUDER, "kill", "delay")
    assert result.violation is None, f"highwater simulate --seeds {seed}:{seed + 1}: {result.violation}"
    assert result.situations["invalid batch refused"] > 5


def test_a_broker_that_does_not_decode_records_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_scan", lambda batch, header: Scan(0, header.max_timestamp, ()))
    violation = run(0, INTRUDER, "kill").violation
    assert violation is not None
    assert violation.invariant == "NothingInvalidStored"


@pytest.mark.long
def test_a_broker_that_lets_clients_write_to_internal_topics_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "INTERNAL_TOPICS", frozenset())
    violations = [run(seed, INTRUDER, "kill").violation for seed in range(4)]
    assert any(violation is not None for violation in violations)


@pytest.mark.parametrize("log", ["data", "offsets", "transactions"])
@pytest.mark.parametrize("seed", range(2))
def test_a_flipped_bit_of_any_log_breaks_no_promise(log: str, seed: int) -> None:
    """The first coordinator of the group, or the leader, meets its damaged log when it starts."""
    faults = tuple(
        Fault(
            at_ms=1_500 + 1_500 * n,
            for_ms=400,
            kind="rot",
            nodes=(node,),
            options={"bit": 40_123 * (seed + 1), "of": log},
        )
        for n, node in enumerate(("leader(t,0)", "coordinator(g)"))
    )
    schedule = Schedule(seed=seed, duration_ms=6_000, faults=faults)
    result = run_seed(seed, Settings(swarm=True, load=GROUPS_AND_TRANSACTIONS), schedule=schedule)
    assert result.violation is None, str(result.violation)
    assert result.situations["rot"] > 0
