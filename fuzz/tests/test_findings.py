"""The report of a broken invariant, and the kept seeds of guards."""

import re
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.fuzz.schedule import Schedule, read_schedule
from highwater.fuzz.simulator import findings
from highwater.fuzz.simulator.causes.lines import COLUMNS, SHOWN, Line, by_time, shortened
from highwater.fuzz.simulator.causes.report import OF_TRANSACTIONS
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.findings import SeedFinding, event_table, find_smallest
from highwater.fuzz.simulator.guard_focus import settings_without_guard
from highwater.fuzz.simulator.invariants.violations import NOTHING
from highwater.fuzz.simulator.kept_seeds import FOLDER, KeptSeed, kept_seeds, read_kept_seed, write_kept_seed
from highwater.fuzz.simulator.search import SeedResult, run_seed
from highwater.fuzz.simulator.sweep import NOT_AGAIN, _shrunk, finding_lines
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
    assert lines[3].split() == ["ms", "where", "what"]
    assert lines[-1].strip() == f"trace:  {tmp_path}/trace.ndjson"
    again = run_seed(0, NO_GUARD, schedule=read_schedule(tmp_path / "schedule.json"))
    assert again.violation == finding.violation
    assert event_table(read_trace(tmp_path / "trace.ndjson")) == event_table(finding.result.steps)


def report_of(guard: str) -> list[str]:
    """Return the lines of the cause in the report of a kept seed."""
    kept = read_kept_seed(FOLDER / f"{guard}.json")
    lines = SeedFinding(kept.run(tracing=True), kept.schedule, kept.settings()).lines(Path("folder"))
    return lines[lines.index(f"  {COLUMNS}") + 1 : -1]


def number_of(lines: list[str], *words: str) -> int:
    """Return the number of the first line with all these words."""
    return next(number for number, line in enumerate(lines) if all(word in line for word in words))


def test_the_cause_of_an_early_acknowledgement_is_the_answer_before_the_followers_have_the_record() -> None:
    lines = report_of("AckAfterCommit")
    answered = number_of(lines, "Produce t-0", "NONE at", "base_offset=0")
    assert answered < number_of(lines, "broker:3 leader", "LeaderWrite", "log end 1, high watermark 0")
    assert number_of(lines, "broker:2 follower", "at the end: epoch 0, log end 0") > answered
    assert "SendFetch" not in str(lines)  # no step that changes nothing about the offset
    assert "__transaction_state" not in str(lines)  # nor one of another partition


def test_the_cause_of_two_owners_shows_who_owned_and_who_was_assigned_what() -> None:
    lines = report_of("ClaimsBearGeneration")
    assert number_of(lines, "member:1", "JoinGroup", "owns t-0:") < number_of(
        lines, "member:0", "JoinGroup", "owns t-0 t-1"
    )
    assert number_of(lines, "member:1", "SyncGroup", "is assigned t-0") > 0
    assert "OffsetCommit" not in str(lines)  # a commit that succeeds says nothing about owners


def test_the_cause_of_a_step_back_of_the_controller_epoch_shows_both_controllers() -> None:
    lines = report_of("FenceStaleController")
    assert number_of(lines, "-> broker:2", "controller_epoch=1") < number_of(lines, "-> broker:2", "controller_epoch=2")
    assert "-> broker:3" not in str(lines)  # broker 2 has accepted the lower epoch


def test_the_cause_of_two_fetchers_shows_their_claims() -> None:
    lines = report_of("ClaimIfFree")
    assert number_of(lines, "store", "Claim", "c1-0", "old/1-0") > number_of(lines, "c1-1", "Fetching", "old/1-0")


def test_a_violation_of_a_transaction_shows_its_messages_across_nodes() -> None:
    shown = report_of("EndTxnBumpsEpoch")
    requests = [line.split()[4] for line in shown]
    assert {"EndTxn", "WriteTxnMarkers", "AddPartitions", "Produce"} == set(requests)
    # The markers of the violation follow no EndTxn of this transaction: a late copy of an earlier one caused them.
    first = number_of(shown, "txn 0 2 0: NONE")
    assert "WriteTxnMarkers" in requests[first:]
    assert "EndTxn" not in requests[first:]


@pytest.mark.parametrize("guard", ["HideAborted", "StableBeforeOpen"])
def test_a_wrong_read_of_a_transaction_shows_that_transaction(guard: str) -> None:
    lines = SeedFinding(*_first_without(guard)).lines(Path("folder"))
    named = re.search(r"b'(txn \d+ \d+) \d+'", lines[0])
    assert named is not None, lines[0]
    shown = lines[lines.index(f"  {COLUMNS}") + 1 : -1]
    assert any("Produce" in line and f"{named[1]} " in line for line in shown), shown
    assert len(shown) <= SHOWN


def _first_without(guard: str) -> tuple[SeedResult, Schedule, Settings]:
    """Return the first run that is wrong without a guard, with its trace."""
    settings = settings_without_guard(guard)
    results = (run_seed(seed, settings, tracing=True) for seed in range(20))
    result = next(
        each for each in results if each.violation is not None and each.violation.invariant in OF_TRANSACTIONS
    )
    return result, result.schedule, settings


def test_a_violation_that_does_not_happen_again_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_seed(0, NO_GUARD)
    monkeypatch.setattr(findings, "run_seed", lambda seed, *_, **__: run_seed(seed, Settings()))
    lines = _shrunk(result, NO_GUARD, None, None)["lines"]
    assert lines == [str(result.violation), NOT_AGAIN]
    assert not list(tmp_path.iterdir())


def test_repetitions_are_counted_and_the_middle_is_left_out() -> None:
    failing = [Line(at_ms, "a -> b", f"Produce: TIMED_OUT at {at_ms}", "Produce TIMED_OUT") for at_ms in range(1, 40)]
    other = [Line(20, "a -> c", "Produce: NONE at 21")]
    lines = by_time([*other, *failing])
    assert [line.at_ms for line in lines] == [1, 20, 39]
    assert lines[-1].what == "Produce: TIMED_OUT at 39, the last of 39"
    many = [Line(at_ms, "a", "step") for at_ms in range(20)]
    shown = shortened(many)
    assert len(shown) == SHOWN
    assert [line.split()[0] for line in shown[:4]] == ["0", "1", "2", "3"]
    assert shown[4].strip() == "... 6 more"
    assert shown[-1] == str(many[-1])


def test_other_seeds_of_a_kind_are_one_line() -> None:
    findings = [
        {"seed": seed, "kind": "LogMatching", "message": "", "replay": f"highwater simulate --seeds {seed}:{seed + 1}"}
        for seed in range(1, 30)
    ]
    first = {"seed": 0, "kind": "LogMatching", "lines": ["the report"]}
    assert list(finding_lines([first, *findings])) == [
        "the report",
        "29 more of LogMatching, seeds 1, 2, 3, 4, 5, 6, 7, 8, ...: highwater simulate --seeds 1:2",
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize("path", kept_seeds(), ids=lambda path: path.stem)
def test_the_report_of_a_kept_seed_follows_what_is_broken(path: Path) -> None:
    kept = read_kept_seed(path)
    result = kept.run(tracing=True)
    assert result.violation is not None
    assert result.violation.about != NOTHING or result.violation.invariant in OF_TRANSACTIONS
    assert result.cause[0] == COLUMNS
    assert 0 < len(result.cause[1:]) <= SHOWN


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
