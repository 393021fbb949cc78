"""The report of a broken invariant, and the kept seeds of guards."""

from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.fuzz.schedule import read_schedule
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.findings import TRANSACTION_COLUMNS, Finding, event_table, find_smallest
from highwater.fuzz.simulator.kept_seeds import FOLDER, KeptSeed, kept_seeds, read_kept_seed, write_kept_seed
from highwater.fuzz.simulator.search import run_seed
from highwater.fuzz.simulator.transaction_messages import SHOWN
from highwater.spec.formats.trace import read_trace
from highwater.spec.guards import NONE_BECAUSE, find_guard, load_guards

NO_GUARD = Settings(guards_off=("AckAfterCommit",))


def test_a_finding_is_reported_in_order_and_its_files_reproduce_it(tmp_path: Path) -> None:
    result = run_seed(0, NO_GUARD)
    assert result.violation is not None
    finding = find_smallest(0, NO_GUARD, result.schedule, result.violation.invariant)
    finding.save(tmp_path)
    lines = finding.lines(tmp_path)
    assert lines[0].startswith("CommittedOnEligible (IsrCommit; CommittedOnIsr of HwTruncation) is broken at ")
    assert (
        lines[1].strip() == f"again:  highwater simulate --schedule {tmp_path}/schedule.json --guard-off AckAfterCommit"
    )
    assert lines[2].strip() == "seed 0, no faults:"
    assert lines[3].split() == ["ms", "node", "role", "epoch", "LEO", "HW", "ISR", "event"]
    assert lines[-2].split()[-2:] == ["LeaderAck", "last_offset=0"]
    assert lines[-1].strip() == f"trace:  {tmp_path}/trace.ndjson"
    again = run_seed(0, NO_GUARD, schedule=read_schedule(tmp_path / "schedule.json"))
    assert again.violation == finding.violation
    assert event_table(read_trace(tmp_path / "trace.ndjson")) == event_table(finding.result.steps)


def test_a_violation_of_a_transaction_shows_its_messages_across_nodes() -> None:
    kept = read_kept_seed(FOLDER / "EndTxnBumpsEpoch.json")
    lines = Finding(kept.run(tracing=True), kept.schedule, kept.settings()).lines(Path("folder"))
    shown = lines[lines.index(f"  {TRANSACTION_COLUMNS}") + 1 : -1]
    assert 0 < len(shown) <= SHOWN
    requests = [line.split()[4] for line in shown]
    assert {"EndTxn", "WriteTxnMarkers", "AddPartitions", "Produce"} == set(requests)
    # The markers of the violation follow no EndTxn of this transaction: a late copy of an earlier one caused them.
    first = next(number for number, line in enumerate(shown) if "txn 0 6 0: NONE" in line)
    assert "WriteTxnMarkers" in requests[first:]
    assert "EndTxn" not in requests[first:]


@pytest.mark.sample(4)
@pytest.mark.parametrize("path", kept_seeds(), ids=lambda path: path.stem)
def test_a_kept_seed_breaks_the_invariant_of_its_guard(path: Path) -> None:
    kept = read_kept_seed(path)
    violation = kept.run().violation
    assert violation is not None
    assert violation.invariant == kept.invariant
    assert path.stem == kept.guard
    assert find_guard(kept.guard).witnesses.simulator == f"fuzz/seeds/{kept.guard}.json breaks {kept.invariant}"


def test_every_guard_has_a_seed_or_a_reason_for_having_none() -> None:
    kept = {path.stem for path in kept_seeds()}
    without = [guard for guard in load_guards().values() if guard.id not in kept]
    assert [guard.id for guard in without if not guard.witnesses.simulator.startswith(NONE_BECAUSE)] == []


def test_a_kept_seed_round_trips_through_its_file(tmp_path: Path) -> None:
    result = run_seed(0, NO_GUARD)
    kept = KeptSeed(guard="AckAfterCommit", invariant="CommittedOnEligible", schedule=result.schedule)
    assert read_kept_seed(write_kept_seed(kept, tmp_path)) == kept
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UsageError, match=r"other\.json: this is not a kept seed"):
        read_kept_seed(tmp_path / "other.json")
