"""Probes: they cite clauses, a wrong answer is found in calm times only, and each kind of run is clean."""

import tomllib
from pathlib import Path

import pytest

from highwater import spec
from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.probes import table
from highwater.fuzz.simulator.probes.client.node import PROBES, Needs, Probe
from highwater.fuzz.simulator.probes.client.session import E, Session, record
from highwater.fuzz.simulator.probes.table import FIRST_PROBES, LAST_START_MS, PROBERS, in_turn
from highwater.fuzz.simulator.search import SeedResult, run_seed
from highwater.fuzz.simulator.swarm import PROBE_MS, PROBE_RUNS
from highwater.reference.replication.partition import Partition
from highwater.reference.transactions.store import Entry, TransactionStore
from highwater.reference.transactions.transaction import Transaction
from highwater.reference.wire.errors import ErrorCode


def run(kind: str, *, seed: int = 1, schedule: Schedule | None = None) -> SeedResult:
    return run_seed(seed, Settings(swarm=True, load=Load(producers=1, probes=kind)), schedule=schedule)


def test_every_probe_cites_clauses_that_exist() -> None:
    folder = Path(spec.__path__[0]) / "clauses"
    known = {
        clause["id"]
        for path in folder.glob("*.toml")
        for value in tomllib.loads(path.read_text()).values()
        if isinstance(value, list)
        for clause in value
    }
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    for probe in PROBES:
        assert probe.clauses, probe.name
        assert set(probe.clauses) <= known, (probe.name, set(probe.clauses) - known)


def test_every_kind_of_run_has_probers_and_times() -> None:
    assert set(PROBE_RUNS) == set(PROBERS) == set(LAST_START_MS) == set(PROBE_MS)


def test_each_probe_that_runs_alone_is_among_the_first_of_some_seed() -> None:
    probes = [probe for probe in PROBES if probe.needs is Needs.ALONE]
    turns = -(-len(probes) // FIRST_PROBES)
    for start in (0, 5 * turns):
        first = [each.name for seed in range(start, start + turns) for each in in_turn(seed, probes)[:FIRST_PROBES]]
        assert set(first) == {probe.name for probe in probes}


@pytest.mark.parametrize("kind", sorted(PROBERS))
def test_a_run_of_each_kind_finds_nothing_wrong(kind: str) -> None:
    result = run(kind)
    assert str(result.violation) == "None"
    assert any(situation.startswith("probe ") for situation in result.situations)


async def wrong_offset(session: Session) -> None:
    topic = await session.create_topic()
    session.equal(await session.append(topic, [record(b"v")]), 1, "the first offset")


def test_an_unexpected_answer_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PROBES", (Probe("wrong", ("PRD-4",), wrong_offset),))
    violation = run("calm").violation
    assert violation is not None
    assert violation.invariant == "AnswersFitModel"
    assert violation.message == "probe wrong (PRD-4): the first offset is 0, not 1"


def test_an_unexpected_answer_during_faults_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PROBES", (Probe("wrong", ("PRD-4",), wrong_offset),))
    clog = Fault(at_ms=0, for_ms=12_000, kind="delay", nodes=("store",), options={"ms": 1})
    assert run("faults", schedule=Schedule(seed=1, duration_ms=12_000, faults=(clog,))).violation is None


async def forbidden(session: Session) -> None:
    topic = await session.create_topic()
    await session.append(topic, [record(b"v")])
    session.require((await session.fetch(topic, 9)).error_code == E.NONE, "offset 9 exists")


def test_a_requirement_holds_under_faults_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PROBES", (Probe("forbidden", ("FET-4",), forbidden),))
    delay = Fault(at_ms=0, for_ms=12_000, kind="delay", nodes=("store",), options={"ms": 1})
    violation = run("faults", schedule=Schedule(seed=1, duration_ms=12_000, faults=(delay,))).violation
    assert violation is not None
    assert violation.message.endswith("offset 9 exists")


def test_a_log_start_that_moves_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(partition: Partition, offset: int) -> None:
        partition.log.log_start_offset = offset

    probes = tuple(probe for probe in PROBES if probe.name == "trim")
    monkeypatch.setattr(table, "PROBES", probes)
    assert run("calm").violation is None
    monkeypatch.setattr(Partition, "advance_log_start", advance)
    violation = run("calm").violation
    assert violation is not None
    assert violation.invariant == "AnswersFitModel", str(violation)


def test_a_change_of_state_that_is_applied_though_the_log_refused_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write_transition = TransactionStore.write_transition

    async def apply_always(store: TransactionStore, entry: Entry, next_state: Transaction) -> ErrorCode:
        error = await write_transition(store, entry, next_state)
        if store.owns(entry):
            entry.current = next_state
        return error

    monkeypatch.setattr(table, "PROBES", tuple(probe for probe in PROBES if probe.name == "refused end"))
    assert run("alone", seed=0).situations["probe refused end"] == 1
    monkeypatch.setattr(TransactionStore, "write_transition", apply_always)
    violation = run("alone", seed=0).violation
    assert violation is not None
    assert "is answered with CONCURRENT_TRANSACTIONS for seconds" in violation.message
