"""Verdicts depend on the case itself, not on cases that run in parallel."""

import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from highwater.conformance import plugin
from highwater.conformance.running.judging import RunOutcome, TargetGone, judge
from highwater.conformance.running.sharing import ACQUIRE, SharedExclusiveLock, SharedTarget, TargetServer
from highwater.conformance.running.verdicts import CaseResult, CaseVerdict
from highwater.conformance.targets.external import ExternalTarget
from highwater.conformance.targets.reference import ReferenceTarget
from highwater.conformance.tests.listed_cases import run_case
from highwater.errors import UsageError


def result(verdict: CaseVerdict) -> CaseResult:
    return CaseResult(case="FRM-1", clause="FRM-1", level="MUST", verdict=verdict, message=f"it was a {verdict}")


def together(*, exclusive: bool) -> AbstractContextManager[None]:
    return nullcontext()


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceTarget]:
    target = ReferenceTarget(1)
    yield target
    target.close()


class Runs:
    """Returns one verdict after another, and kills the broker in the runs `deaths`, counted from 1."""

    def __init__(self, target: ReferenceTarget, *verdicts: CaseVerdict, deaths: tuple[int, ...] = ()) -> None:
        self._target, self._verdicts, self._deaths, self.count = target, verdicts, deaths, 0

    def __call__(self) -> tuple[CaseResult, int]:
        self.count += 1
        if self.count in self._deaths:
            self._target.kill_node(1)
        return result(self._verdicts[self.count - 1]), self.count


PASS, FAIL, FLAKY = CaseVerdict.PASS, CaseVerdict.FAIL, CaseVerdict.FLAKY


@pytest.mark.parametrize(
    ("verdicts", "repeat", "expected"),
    [
        ((PASS,), 1, PASS),
        ((PASS, PASS, PASS), 3, PASS),
        ((PASS, FAIL), 2, FLAKY),
        ((FAIL, FAIL), 1, FAIL),
        ((FAIL, PASS), 1, FLAKY),
    ],
)
def test_verdicts_that_differ_are_flaky(
    reference: ReferenceTarget, verdicts: tuple[CaseVerdict, ...], repeat: int, expected: CaseVerdict
) -> None:
    runs = Runs(reference, *verdicts)
    assert judge(reference, together, runs, repeat=repeat)[0].verdict is expected
    assert runs.count == len(verdicts)


def test_a_known_failure_is_not_run_again(reference: ReferenceTarget) -> None:
    runs = Runs(reference, FAIL)
    assert judge(reference, together, runs, is_known=lambda result: result.case == "FRM-1")[0].verdict is FAIL
    assert runs.count == 1


def test_a_known_failure_is_run_again_if_the_target_died_meanwhile(reference: ReferenceTarget) -> None:
    runs = Runs(reference, FAIL, PASS, deaths=(1,))
    assert judge(reference, together, runs, is_known=lambda result: True)[0].verdict is PASS
    assert runs.count == 2


def test_a_case_that_kills_the_target_alone_fails_and_the_target_is_restarted(reference: ReferenceTarget) -> None:
    found, _ = judge(reference, together, Runs(reference, FAIL, FAIL, deaths=(1, 2)))
    assert found.verdict is FAIL
    assert "died" in found.message
    assert judge(reference, together, Runs(reference, PASS))[0].verdict is PASS


def test_a_case_parallel_to_a_target_crash_is_judged_by_its_second_run(reference: ReferenceTarget) -> None:
    found, run = judge(reference, together, Runs(reference, FAIL, PASS, deaths=(1,)))
    assert (found.verdict, run) == (PASS, 2)


def test_a_case_is_judged_by_its_second_run_if_another_worker_restarted_the_target(
    reference: ReferenceTarget,
) -> None:
    server = TargetServer(reference)
    ours, theirs = SharedTarget(server.address), SharedTarget(server.address)
    verdicts = Runs(reference, FAIL, PASS)

    def run() -> RunOutcome[int]:
        found = verdicts()
        if verdicts.count == 1:
            theirs.revive()
        return found

    assert judge(ours, ours.acquire, run)[0].verdict is PASS
    for worker in (ours, theirs):
        worker.close()
    server.close()


def test_the_crash_of_a_target_that_cannot_be_restarted_ends_the_run() -> None:
    report_owned = ReferenceTarget(1)
    theirs = ExternalTarget(report_owned.bootstrap)
    try:
        with pytest.raises(TargetGone, match=r"died .*after FRM-1"):
            judge(theirs, together, Runs(report_owned, FAIL, deaths=(1,)))
    finally:
        report_owned.close()


def test_workers_share_a_target_and_one_at_a_time_has_it_exclusively(reference: ReferenceTarget) -> None:
    server = TargetServer(reference)
    first, second = SharedTarget(server.address), SharedTarget(server.address)
    assert (first.name, first.addresses, first.settings) == ("reference", reference.addresses, reference.settings)
    entered = threading.Event()

    def acquire_exclusively() -> None:
        with second.acquire(exclusive=True):
            entered.set()

    with first.acquire(exclusive=False):
        other = threading.Thread(target=acquire_exclusively)
        other.start()
        assert not entered.wait(0.1)
    assert entered.wait(10)
    other.join()
    with pytest.raises(RuntimeError, match="rejected"):
        first.stop_node(7)
    first.close()
    with second.acquire(exclusive=True):
        pass
    second.close()
    server.close()


def test_the_lock_of_a_dead_worker_is_released(reference: ReferenceTarget) -> None:
    server = TargetServer(reference)
    lost, other = SharedTarget(server.address), SharedTarget(server.address)
    entered = threading.Event()

    def acquire_exclusively() -> None:
        with other.acquire(exclusive=True):
            entered.set()

    lost._call(ACQUIRE, True)  # and never RELEASE
    waiting = threading.Thread(target=acquire_exclusively, daemon=True)
    waiting.start()
    assert not entered.wait(0.1)
    lost.close()
    assert entered.wait(10)
    waiting.join()
    other.close()
    server.close()


def test_a_waiting_exclusive_worker_precedes_later_shared_ones() -> None:
    lock, order, leave = SharedExclusiveLock(), list[str](), threading.Event()

    def use(name: str, *, exclusive: bool) -> threading.Thread:
        def use_now() -> None:
            with lock.acquire(exclusive=exclusive):
                order.append(name)
                leave.wait(10)

        thread = threading.Thread(target=use_now)
        thread.start()
        return thread

    with lock.acquire(exclusive=False):
        exclusive = use("alone", exclusive=True)
        while not lock._exclusive_waiters:
            exclusive.join(0.01)
        late = use("late", exclusive=False)
        late.join(0.1)
        assert order == []
    while not order:
        late.join(0.01)
    late.join(0.1)
    assert order == ["alone"]
    leave.set()
    exclusive.join()
    late.join()
    assert order == ["alone", "late"]


def test_a_worker_without_its_server_process_reports_an_error(reference: ReferenceTarget) -> None:
    server = TargetServer(reference)
    worker = SharedTarget(server.address)
    server.close()
    worker._server.close()
    with pytest.raises(UsageError, match="is gone"):
        worker.start_node(1)
    with pytest.raises((UsageError, OSError)), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(server.address)


def test_a_worker_starts_beside_a_broker_that_another_one_ended(reference: ReferenceTarget) -> None:
    """It asked for the versions itself, and the run ended with an internal error."""
    server = TargetServer(reference)
    config = SimpleNamespace(stash=pytest.Stash(), pluginmanager=pytest.PytestPluginManager())
    reference.kill_node(1)
    try:
        plugin._begin(SimpleNamespace(config=config), plugin.Served(server.address, {18: (0, 4)}))  # type: ignore[arg-type]
        assert config.stash[plugin.ADVERTISED_VERSIONS] == {18: (0, 4)}
    finally:
        config.stash[plugin.TARGET].close()
        server.close()
        reference.start_node(1)


FAILING = """
from pathlib import Path
from highwater.conformance.clause import clause

@clause("FRM-1")
def test_a_case_that_fails(cluster):
    with (Path(__file__).parent / "runs").open("a") as runs:
        runs.write("once more ")
    assert False
"""


@pytest.mark.parametrize(("known", "runs"), [("FRM-1", 1), ("FRM-2", 2)])
def test_a_failure_that_a_file_lists_is_run_once(tmp_path: Path, known: str, runs: int) -> None:
    listed = tmp_path / "known.toml"
    listed.write_text(f'[[expectation]]\nclause = "{known}"\nverdict = "fail"\nreason = "known"\n')
    run_case(tmp_path, FAILING, "--hw-target=reference", f"--hw-expect={listed}")
    assert (tmp_path / "runs").read_text() == "once more " * runs
