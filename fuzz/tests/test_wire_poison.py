"""A broker that does not start again with its data: it is started with empty data, and the cause is found."""

from pathlib import Path
from typing import Any, cast

import pytest

from highwater.conformance.targets.base import Target
from highwater.conformance.targets.reference import ReferenceTarget
from highwater.errors import UsageError
from highwater.fuzz.tests.test_wire import fake_broker, honest
from highwater.fuzz.tests.test_wire_watches import SEED, case_of
from highwater.fuzz.wire.examination.triage import LATE_PART, NO_START, SUSPECTS_MAX, Triage
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.replay import Replay
from highwater.fuzz.wire.session import Session
from highwater.fuzz.wire.target import FuzzTarget
from highwater.mutants.node import node_with
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.properties import read_config
from highwater.reference.wire.registry import APIS

CREATE_TOPICS = 19
CRASH = Failure(Oracle.ALIVE, "the target refuses connections")


class PoisonedTarget:
    """A target that was launched, and does not start again with its data."""

    version, capabilities = "1", frozenset[str]()

    def __init__(self, address: str) -> None:
        self.addresses, self.is_closed = {1: address}, False

    def revive(self) -> bool:
        raise UsageError("broker 1 ends while it starts")

    def close(self) -> None:
        self.is_closed = True


def poisoned(address: str) -> Target:
    return cast("Target", PoisonedTarget(address))


def test_a_target_that_does_not_start_with_its_data_is_started_without() -> None:
    with fake_broker(honest) as address, fake_broker(honest) as other:
        first, second = poisoned(address), poisoned(other)
        target = FuzzTarget(address, first, "test", launch=lambda: second)
        assert target.revive()
        assert (target.address, target.renewals) == (other, 1)
        assert cast("PoisonedTarget", first).is_closed
        target.close()
        assert cast("PoisonedTarget", second).is_closed


def test_a_target_without_another_instance_stays_dead() -> None:
    with fake_broker(honest) as address:
        target = FuzzTarget(address, poisoned(address), "test")
        assert not target.revive()
        assert target.renewals == 0


def test_a_broker_that_ends_while_it_starts_is_not_waited_for() -> None:
    target = ReferenceTarget(1, node_program=node_with(["PoisonedStart"]))
    try:
        command = Path(f"/proc/{target.pid(1)}/cmdline").read_text().split("\0")
        config = read_config(Path(command[command.index("--config") + 1]))
        assert isinstance(config, BrokerConfig)
        Path(config.log_dir, "poisoned").touch()
        target.kill_node(1)
        with pytest.raises(UsageError, match="broker 1 ends while it starts"):
            target.revive()
    finally:
        target.close()


class LateTriage(Triage):
    """Triage of a target that `culprit` crashes after its response: at once for a replay that waits, else in the next.

    `other` crashes it before its response.
    """

    culprit: Case | None = None
    other: Case | None = None
    crashes = 0
    _is_dying = False

    def breaks(self, cases: list[Case], oracle: Oracle) -> bool:
        self.tries += 1
        is_hit = any(case is self.culprit for case in cases)
        is_dead = self._is_dying or (is_hit and bool(self._settle_s)) or any(case is self.other for case in cases)
        self._is_dying = is_hit and not is_dead
        self.crashes += is_dead
        return is_dead


SUSPECTS = [case_of(3, version) for _ in range(30) for version in range(10)]


@pytest.mark.parametrize("place", [len(SUSPECTS) - 1, len(SUSPECTS) - 7, len(SUSPECTS) - SUSPECTS_MAX - 50, 0])
def test_a_crash_after_the_response_is_not_charged_to_the_next_request(place: int, tmp_path: Path) -> None:
    triage = LateTriage(FuzzTarget("127.0.0.1:1"), tmp_path, SEED, "test")
    triage.culprit = SUSPECTS[place]
    found = triage._find_cause(Oracle.ALIVE, SUSPECTS)
    assert len(found) == 1
    assert found[0] is SUSPECTS[place]
    assert triage.crashes <= 4, "each crash costs a start"
    assert triage.tries <= SUSPECTS_MAX + 2 + len(SUSPECTS) / LATE_PART + LATE_PART


def test_a_crash_before_the_response_needs_one_more_try(tmp_path: Path) -> None:
    triage = LateTriage(FuzzTarget("127.0.0.1:1"), tmp_path, SEED, "test")
    triage.other = SUSPECTS[-5]
    found = triage._find_cause(Oracle.ALIVE, SUSPECTS)
    assert [case is SUSPECTS[-5] for case in found] == [True]
    assert triage.tries == 6


def no_restart(self: FuzzTarget, *, empty: bool = False) -> bool:
    self.renewals += 1
    return True


def test_a_finding_says_that_the_target_does_not_start_with_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    culprit = case_of(CREATE_TOPICS)

    def run(self: Replay, cases: list[Case], oracle: Oracle | None = None) -> Failure | None:
        return CRASH if culprit in cases else None

    monkeypatch.setattr(Replay, "run", run)
    monkeypatch.setattr(FuzzTarget, "restart", no_restart)
    with fake_broker(honest) as address:
        triage = Triage(FuzzTarget(address), tmp_path, SEED, "test", shrink_s=0)
        finding = triage.confirm(CRASH, [culprit, case_of(3)], 1)
        assert finding is not None
        assert (finding.api, finding.message, finding.reproduced) == ("CreateTopics", CRASH.message + NO_START, True)
        every_version = range(APIS[CREATE_TOPICS].min_version, APIS[CREATE_TOPICS].max_version + 1)
        assert triage.fatal_versions == {(CREATE_TOPICS, version) for version in every_version}
        monkeypatch.setattr(FuzzTarget, "restart", lambda self, empty=False: True)
        other = Triage(FuzzTarget(address), tmp_path, SEED, "test", shrink_s=0).confirm(CRASH, [culprit], 2)
        assert other is not None
        assert NO_START not in other.message


def test_the_target_is_not_restarted_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restarts: list[Any] = []
    monkeypatch.setattr(FuzzTarget, "restart", restarts.append)
    monkeypatch.setattr(FuzzTarget, "revive", restarts.append)
    with fake_broker(honest) as address:
        session = Session(FuzzTarget(address), tmp_path, SEED)
        try:
            session.target.start_s = 2 * session.bounds.seconds
            session._handle_death(CRASH, [])
            assert (session.totals.ended, restarts) == ("time", [])
        finally:
            session.totals.ended = "the test is over"
            session.run()
