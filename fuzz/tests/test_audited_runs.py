"""Every run is audited: the auditor finds bugs with all invariants of the simulator switched off, and no others."""

import pytest

from highwater.commands.run_audit import audit_run
from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.invariants.violations import NOTHING, About
from highwater.fuzz.simulator.search import Audited, run_seed
from highwater.fuzz.tests.test_readers import BUGS, Bug
from highwater.spec.formats.history import NEMESIS, Config, Event

FOUND_AS = {
    "no_aborted_list": "truncated-after-read",
    "no_stable_end": "truncated-after-read",
    "lost_record": "poll-skip",
    "end_below_epoch_start": "stale-read",
    "forgotten_offsets": "forgotten-commit",
}


@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.plant.__name__ in FOUND_AS], ids=lambda bug: bug.plant.__name__
)
def test_the_audit_finds_a_bug_without_any_invariant(monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    violated = Invariants.violated

    def only_the_audit(invariants: Invariants, invariant: str, message: str, about: About = NOTHING) -> None:
        if invariant == "HistoryIsValid":
            violated(invariants, invariant, message, about)

    monkeypatch.setattr(Invariants, "violated", only_the_audit)
    schedule = Schedule(seed=bug.seed, duration_ms=6_000, faults=bug.faults)
    settings = Settings(load=bug.load)
    control = run_seed(bug.seed, settings, schedule=schedule, audit=audit_run)
    assert control.violation is None
    assert control.audited > 1_000
    bug.plant(monkeypatch)
    violation = run_seed(bug.seed, settings, schedule=schedule, audit=audit_run).violation
    assert violation is not None
    assert violation.message.startswith(FOUND_AS[bug.plant.__name__]), str(violation)


def test_recording_does_not_change_a_run() -> None:
    settings = Settings(load=Load(producers=1, transactional=1, readers=2, group_readers=2), partitions=3)
    plain, audited = run_seed(2, settings), run_seed(2, settings, audit=audit_run)
    assert plain.violation is None
    assert audited.violation is None
    assert (plain.fingerprint, plain.events, plain.audited) == (audited.fingerprint, audited.events, 0)
    assert audited.audited > 0


def test_a_member_that_was_killed_numbers_its_requests_from_the_start() -> None:
    """A response to its new life was once taken for one to a request of the former life."""
    kill = Fault(at_ms=2_452, for_ms=166, kind="kill", nodes=("member:1",))
    schedule = Schedule(seed=164, duration_ms=6_000, faults=(kill,))
    assert run_seed(164, Settings(swarm=True), schedule=schedule, audit=audit_run).violation is None


def test_the_history_says_when_each_fault_began_and_ended() -> None:
    """A cut was once not in the history: of a transaction that could not be ended, the audit said that it hangs."""
    faults = (
        Fault(at_ms=500, for_ms=1_000, kind="cut", nodes=("followers(t,0)",), options={"direction": "both"}),
        Fault(at_ms=2_000, for_ms=0, kind="disconnect", nodes=("leader(t,0)",)),
        Fault(at_ms=2_500, for_ms=60_000, kind="pause", nodes=("3",)),
    )
    seen: list[tuple[str, int]] = []

    def audit(config: Config, events: list[Event]) -> Audited:
        seen.extend((event.f, event.time_ns // 1_000_000) for event in events if event.process == NEMESIS)
        return Audited(1)

    run_seed(0, Settings(), schedule=Schedule(seed=0, duration_ms=4_000, faults=faults), audit=audit)
    times = [at_ms - seen[0][1] for _, at_ms in seen]
    names = ["cut", "cut over", "disconnect", "pause", "pause over", "faults over", "phase"]
    assert [name for name, _ in seen] == names
    assert times[:5] == [0, 1_000, 1_500, 2_000, 3_500]
