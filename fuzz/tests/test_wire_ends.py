"""How a run of the wire fuzzer ends: limits, Ctrl-C, a target that stays dead; what is kept, and what is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from highwater.command_line import application
from highwater.errors import ExitCode, UsageError
from highwater.fuzz.tests.test_wire import (
    RESPONSES,
    SEED,
    dies_of_a_group,
    fake_broker,
    fuzzed,
    honest,
    wrong_correlation_id,
)
from highwater.fuzz.tests.test_wire_watches import case_of, no_pause
from highwater.fuzz.wire.clients.process import ClientProcess
from highwater.fuzz.wire.clients.session import ClientSession
from highwater.fuzz.wire.engine import Engine
from highwater.fuzz.wire.examination.confirmation import Confirmation
from highwater.fuzz.wire.examination.minimise import minimise_finding
from highwater.fuzz.wire.examination.triage import TargetGoneError, Triage
from highwater.fuzz.wire.findings import UNEXAMINED, read_finding, read_unexamined
from highwater.fuzz.wire.generate.cases import Case, Ends
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.replay import replay_finding
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.target import FuzzTarget
from highwater.fuzz.wire.verdict import exit_code, verdict
from highwater.reference.wire.framing import encode_request, encode_response
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest

FIND_COORDINATOR, METADATA = 10, 3
KILLER = Case(
    FIND_COORDINATOR, 0, (encode_request(FindCoordinatorRequest(key="fuzz-group-2"), 0, 1, "test"),)
)  # fmt: skip
CRASH = Failure(Oracle.ALIVE, "the target refuses connections")
WRONG = Failure(Oracle.DECODE, "Metadata v0: ends early")


def interrupt(*arguments: object, **named: object) -> None:
    raise KeyboardInterrupt


def triage_of(folder: Path, address: str) -> Triage:
    return Triage(FuzzTarget(address), folder, SEED, address, shrink_s=5)


# -- interruptions ---------------------------------------------------------------------------------


def test_an_interrupted_run_keeps_what_it_saw_and_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_broker(wrong_correlation_id) as address:
        with monkeypatch.context() as patch:
            patch.setattr(Triage, "_find_cause", interrupt)
            first = fuzzed(address, tmp_path)
        assert (first["ended"], first["findings"]) == ("interrupted", [])
        assert any(name.startswith("correlation: FindCoordinator") for name in first["unexamined"])
        assert (exit_code(first), verdict(first)) == (ExitCode.UNDECIDED, "undecided")
        left = read_unexamined(tmp_path)
        assert len(left) == len(first["unexamined"])
        one = next(finding for finding in left if finding.oracle is Oracle.CORRELATION)
        assert not one.reproduced
        failure = replay_finding(FuzzTarget(address), one)
        assert failure is not None
        assert failure.oracle is Oracle.CORRELATION
        second = Session(FuzzTarget(address), tmp_path, SEED, Bounds(40, cases=1, deadline_s=0.5), resume=True).run()
    assert "correlation" in {finding["oracle"] for finding in second["findings"]}
    assert second["unexamined"] == []
    assert not (tmp_path / UNEXAMINED).exists()
    assert exit_code(second) == ExitCode.VIOLATED


def test_the_command_says_that_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "_relate", interrupt)
    with fake_broker(honest) as address:
        result = CliRunner().invoke(application("fuzz"), ["fuzz", address, "--out", "out"])
    assert result.exit_code == ExitCode.UNDECIDED, result.output
    assert result.output.endswith("interrupted: undecided\n")
    assert "clean" not in result.output


def test_a_client_that_was_fuzzed_until_an_interruption_is_undecided() -> None:
    assert exit_code({"findings": [], "ended": "interrupted"}) == ExitCode.UNDECIDED
    assert exit_code({"findings": [], "ended": ""}) == ExitCode.HELD
    assert exit_code({"findings": ["x"], "ended": "interrupted"}) == ExitCode.VIOLATED


def test_a_failure_that_was_not_yet_handed_over_is_kept(tmp_path: Path) -> None:
    with fake_broker(honest) as address:
        session = Session(FuzzTarget(address), tmp_path, SEED)
        session._failures.append((WRONG, [case_of(METADATA)], "decode: Metadata v0: ends early"))
        session._stalled.append((3.0, [case_of(METADATA)]))
        session.totals.ended = "interrupted"
        summary = session.run()
    assert summary["unexamined"] == ["decode: Metadata v0: ends early", "stall"]
    assert {finding.message for finding in read_unexamined(tmp_path)} == {
        WRONG.message,
        "a healthy connection waited for 3.0 s",
    }


def test_a_search_that_is_left_out_is_no_failure(tmp_path: Path) -> None:
    with fake_broker(honest) as address:
        confirmation = Confirmation(triage_of(tmp_path, address), no_pause)
        with pytest.raises(KeyboardInterrupt):
            confirmation.submit("a search", interrupt)
        confirmation.close(0)
    assert (confirmation.unexamined(), confirmation.skipped) == ({}, 1)


# -- a target that stays dead ----------------------------------------------------------------------


def test_a_target_that_was_not_launched_is_never_said_to_be_restarted(tmp_path: Path) -> None:
    with fake_broker(dies_of_a_group) as address:
        summary = fuzzed(address, tmp_path)
    assert (summary["ended"], summary["restarts"]) == ("the target is dead", 0)
    (found,) = summary["findings"]
    finding = read_finding(Path(found["path"]))
    assert (finding.oracle, finding.reproduced) == (Oracle.ALIVE, False)
    assert any(b"fuzz-group-2" in frame for case in finding.cases() for frame in case.frames)
    text = Path(found["path"]).with_name("README.md").read_text()
    assert "- reproduced: no\n" in text
    assert "The target stayed dead" in text
    with fake_broker(dies_of_a_group) as address:
        failure = replay_finding(FuzzTarget(address), finding, 0.5)
    assert failure is not None
    assert failure.oracle is Oracle.ALIVE


def test_a_death_without_a_cause_has_the_frames(tmp_path: Path) -> None:
    with fake_broker(dies_of_a_group) as address:
        triage = triage_of(tmp_path, address)
        triage.breaks([KILLER], Oracle.ALIVE)
        finding = triage.confirm(CRASH, [case_of(METADATA), KILLER], 3, "")
    assert finding is not None
    assert [case.frames for case in finding.cases()] == [case_of(METADATA).frames, KILLER.frames]


def test_nothing_is_confirmed_by_a_dead_target(tmp_path: Path) -> None:
    with fake_broker(dies_of_a_group) as address:
        triage = triage_of(tmp_path, address)
        triage.breaks([KILLER], Oracle.ALIVE)
        with pytest.raises(TargetGoneError):
            triage.breaks([case_of(METADATA)], Oracle.ALIVE)
        with pytest.raises(TargetGoneError):
            triage.confirm(WRONG, [case_of(METADATA)], 1)
    assert (triage.findings, triage.unconfirmed) == ([], 0)


def test_a_crash_that_the_same_target_repeats_is_not_shrunk_by_its_absence(tmp_path: Path) -> None:
    with fake_broker(dies_of_a_group) as address:
        finding = triage_of(tmp_path, address).confirm(CRASH, [case_of(METADATA), KILLER], 1)
    assert finding is not None
    assert [case.frames for case in finding.cases()] == [KILLER.frames]
    assert (finding.reproduced, finding.restarted) == (True, False)
    assert "yes, by the same target, which was asked again" in (tmp_path / finding.id / "README.md").read_text()
    with fake_broker(dies_of_a_group) as address, pytest.raises(UsageError, match="cannot be restarted"):
        minimise_finding(FuzzTarget(address), finding, tmp_path, 5)


def test_a_replay_of_a_crash_also_sends_what_follows_a_wrong_reply(tmp_path: Path) -> None:
    def wrong_then_dead(key: int, version: int, request: bytes, answer: bytes) -> bytes | None:
        if key == METADATA:
            return encode_response(RESPONSES[METADATA], version, 77)
        return dies_of_a_group(key, version, request, answer)

    with fake_broker(dies_of_a_group) as address:
        finding = triage_of(tmp_path, address).confirm(CRASH, [KILLER], 1)
    assert finding is not None
    with fake_broker(wrong_then_dead) as address:
        triage = triage_of(tmp_path, address)
        assert triage.breaks([case_of(METADATA), KILLER], Oracle.ALIVE)


# -- limits ----------------------------------------------------------------------------------------


EXPECT_NOTHING = (Ends.LEAVE, Ends.RESET)
"""Ends of cases that are lost if the connection closes because of the case before them."""


class NotingSession(Session):
    """A session that notes which cases it begins, and which of them have an outcome."""

    def __post_init__(self) -> None:
        self.begun, self.judged = list[Case](), list[Case]()
        super().__post_init__()

    def _next_case(self) -> Case:
        self.begun.append(super()._next_case())
        return self.begun[-1]

    def _on_answer(self, case: Case, outcome: tuple[int, ...] | str, answer: bytes) -> None:
        self.judged.append(case)
        super()._on_answer(case, outcome, answer)


@pytest.mark.parametrize("cases", [1, 10, 100])
def test_no_more_cases_are_sent_than_allowed_and_each_is_judged(cases: int, tmp_path: Path) -> None:
    with fake_broker(honest) as address:
        session = NotingSession(FuzzTarget(address), tmp_path, SEED, Bounds(40, cases=cases, deadline_s=5.0))
        summary = session.run()
    assert (summary["cases"], summary["ended"], len(session.begun)) == (cases, "cases", cases)
    assert all(case.ends in EXPECT_NOTHING or case in session.judged for case in session.begun)


def test_a_turn_sends_no_more_than_the_rate_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[int, int]] = []
    send: Callable[..., int] = Engine.run

    def run(self: Engine, seconds: float, budget: int) -> int:
        turns.append((budget, send(self, seconds, budget)))
        return turns[-1][1]

    monkeypatch.setattr(Engine, "run", run)
    with fake_broker(honest) as address:
        fuzzed(address, tmp_path, cases=20, rate=40)
    assert all(begun <= budget <= 10 for budget, begun in turns)


def test_a_rate_is_of_the_time_that_is_shown(tmp_path: Path) -> None:
    with fake_broker(honest) as address:
        session = Session(FuzzTarget(address), tmp_path, SEED)
        session.totals.ended = "the test is over"
        session.run()
    session.totals.cases, session.totals.seconds, session.totals.sending_s = 437, 7.1, 0.5
    summary = session.summary()
    assert (summary["cases_per_second"], summary["seconds"], summary["sending_seconds"]) == (61.5, 7.1, 0.5)


# -- the folder ------------------------------------------------------------------------------------


def test_a_file_is_refused_as_the_folder_before_anything_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        with fake_broker(honest) as address, pytest.raises(UsageError, match="is a file"):
            Session(FuzzTarget(address), folder, SEED)
        with pytest.raises(UsageError, match="is a file"):
            ClientSession(ClientProcess("true {bootstrap}", 1, 1), folder, SEED, 1, 1)


def test_a_run_says_that_findings_of_earlier_runs_are_in_its_folder(tmp_path: Path) -> None:
    def earlier(**bounds: Any) -> int:
        session = Session(FuzzTarget(address), tmp_path, SEED, Bounds(40, findings=1, deadline_s=0.5), **bounds)
        count: int = session.run()["earlier_findings"]
        return count

    with fake_broker(wrong_correlation_id) as address:
        assert [earlier(), earlier(), earlier(resume=True)] == [0, 1, 0]


def test_the_command_in_a_readme_works_in_the_folder_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_broker(wrong_correlation_id) as address:
        found = fuzzed(address, tmp_path, findings=1)["findings"][0]
        monkeypatch.chdir(tmp_path / found["id"])
        assert f"`highwater replay . {address}`" in Path("README.md").read_text()
        replay = CliRunner().invoke(application("replay"), ["replay", ".", address])
        assert replay.exit_code == ExitCode.VIOLATED, replay.output
        minimise = CliRunner().invoke(application("minimise"), ["minimise", ".", address])
        assert minimise.exit_code == ExitCode.HELD, minimise.output
    assert (tmp_path / f"{found['id']}.min" / "finding.json").exists()
