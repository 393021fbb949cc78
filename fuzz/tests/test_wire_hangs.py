"""A broker that hangs: it costs the run seconds once, and its cause is not searched for again once it is known."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from highwater.fuzz.tests.test_wire import fake_broker, honest
from highwater.fuzz.tests.test_wire_watches import GIVE_UP_S, SEED, TwinTarget, case_of, no_pause
from highwater.fuzz.wire.connection import SILENT, why_dead
from highwater.fuzz.wire.examination.confirmation import Confirmation
from highwater.fuzz.wire.examination.triage import RunEndedError, Triage
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.oracles.stalls import StallWatch
from highwater.fuzz.wire.replay import Replay
from highwater.fuzz.wire.session import Session
from highwater.fuzz.wire.target import FuzzTarget

HANG = Failure(Oracle.ALIVE, f"the target {SILENT} for 5 s on a fresh connection")
CREATE_PARTITIONS, METADATA = case_of(37), case_of(3)


@contextmanager
def silent_broker() -> Iterator[str]:
    """Accept connections, and answer nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def hangs(self: Replay, cases: list[Case], oracle: Oracle | None = None) -> Failure | None:
    """Replay against a broker that a CreatePartitions hangs for good."""
    return HANG if CREATE_PARTITIONS in cases else None


def triage_of(folder: Path, address: str) -> Triage:
    return Triage(FuzzTarget(address), folder, SEED, "test")


def test_a_silent_broker_is_not_waited_for_once_its_hang_is_known() -> None:
    polls = iter([False, False, True])
    with silent_broker() as address:
        assert why_dead(address, lambda: next(polls)) is None
    assert next(polls, "all asked") == "all asked"


def test_a_silent_broker_is_dead() -> None:
    with silent_broker() as address:
        assert f"the target {why_dead(address)}" == HANG.message


def test_a_stall_without_an_end_is_confirmed_as_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "run", hangs)
    with fake_broker(honest) as address:
        suspects = [METADATA, CREATE_PARTITIONS, METADATA]
        finding = triage_of(tmp_path, address).confirm(Failure(Oracle.STALL, "waited for 1.0 s"), suspects, 1)
    assert finding is not None
    assert (finding.oracle, finding.api) == (Oracle.ALIVE, "CreatePartitions")


def test_a_known_hang_needs_no_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "run", hangs)
    with fake_broker(honest) as address:
        triage = triage_of(tmp_path, address)
        assert triage.confirm(HANG, [METADATA, CREATE_PARTITIONS], 1) is not None
        tries = triage.tries
        assert triage.confirm(HANG, [METADATA, CREATE_PARTITIONS, METADATA], 2) is None
    assert triage.tries == tries
    assert triage.fatal_cases == [CREATE_PARTITIONS]


def test_another_hang_is_searched_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "run", hangs)
    with fake_broker(honest) as address:
        triage = triage_of(tmp_path, address)
        triage.confirm(HANG, [METADATA, CREATE_PARTITIONS], 1)
        tries = triage.tries
        triage.confirm(HANG, [METADATA], 2)
    assert triage.tries > tries


def test_the_end_of_a_run_does_not_wait_for_a_search(tmp_path: Path) -> None:
    searching = threading.Event()

    def job(triage: Triage) -> None:
        while True:
            triage.breaks([METADATA], Oracle.ALIVE)
            searching.set()

    with fake_broker(honest) as address:
        confirmation = Confirmation(Triage(TwinTarget(address), tmp_path, SEED, "test"), no_pause)
        confirmation.submit("x", job)
        assert searching.wait(GIVE_UP_S)
        confirmation.close(0)
    assert confirmation.skipped == 1


def test_a_cause_that_is_found_at_the_end_of_a_run_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs_at_the_end(self: Replay, cases: list[Case], oracle: Oracle | None = None) -> Failure | None:
        triage.ended.set()
        return hangs(self, cases)

    monkeypatch.setattr(Replay, "run", hangs_at_the_end)
    with fake_broker(honest) as address:
        triage = triage_of(tmp_path, address)
        finding = triage.confirm(HANG, [CREATE_PARTITIONS], 1)
        assert finding is not None
        assert finding.reproduced
        with pytest.raises(RunEndedError):
            triage.breaks([METADATA], Oracle.ALIVE)


def test_a_watch_that_is_closed_still_counts_the_stall_of_its_last_request() -> None:
    """A replay closes it as soon as it has sent its cases, long before the limit."""
    with silent_broker() as address, StallWatch(address, 0.3) as watch:
        while not watch.waiting_s:
            time.sleep(0.01)
    assert watch.stalls == 1


def test_a_hang_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FuzzTarget, "restarts_at_once", True)
    monkeypatch.setattr(FuzzTarget, "restart", lambda self: True)
    monkeypatch.setattr(StallWatch, "stalled_s", 1.5)
    with fake_broker(honest) as address:
        session = Session(FuzzTarget(address), tmp_path, SEED)
        try:
            assert not session._hangs_again(), "the first hang is to be a finding"
            session._handle_death(Failure(Oracle.ALIVE, "the target refuses connections"), [])
            assert not session._hangs_again(), "a crash is no hang"
            session._handle_death(HANG, [])
            assert session._hangs_again()
        finally:
            session.totals.ended = "the test is over"
            session.run()
