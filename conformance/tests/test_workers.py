"""Workers that are forked after one collection."""

import os
import signal
import time
from pathlib import Path

import pytest

from highwater.conformance.running.workers import Ended, Workers, WorkerTask

CASES = range(12)
DIES = 3


def begin(_: object) -> None:
    pass


def end() -> None:
    pass


def shared(count: int) -> list[WorkerTask]:
    cases = iter(CASES)
    return [WorkerTask(None, cases) for _ in range(count)]


def doubled(case: int) -> int:
    return 2 * case


def dies_at_3(case: int) -> int:
    if case == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    return doubled(case)


def always_dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_each_case_runs_once() -> None:
    workers = Workers(3, begin, doubled, end)
    outcomes = list(workers.run(shared(3)))
    workers.close()
    assert sorted(outcomes) == [(case, 2 * case) for case in CASES]


def test_only_the_case_of_a_worker_that_dies_is_lost() -> None:
    workers = Workers(2, begin, dies_at_3, end)
    outcomes = dict(workers.run(shared(2)))
    workers.close()
    assert outcomes == {case: None if case == DIES else 2 * case for case in CASES}


def test_a_run_without_workers_does_not_look_complete() -> None:
    workers = Workers(2, begin, always_dies, end)
    with pytest.raises(Ended):
        list(workers.run(shared(2)))
    workers.close()


def fails_for_a_cluster_of_its_own(own: object) -> None:
    if own:
        raise RuntimeError("no memory")


def test_others_run_the_cases_of_a_worker_that_cannot_begin() -> None:
    cases = iter(CASES)
    workers = Workers(2, fails_for_a_cluster_of_its_own, doubled, end)
    outcomes = dict(workers.run([WorkerTask(False, cases), WorkerTask(True, cases)]))
    workers.close()
    assert outcomes == {case: 2 * case for case in CASES}


def test_cases_without_any_other_worker_do_not_look_complete() -> None:
    workers = Workers(2, fails_for_a_cluster_of_its_own, doubled, end)
    with pytest.raises(Ended):
        list(workers.run([WorkerTask(False, iter(range(3))), WorkerTask(True, iter(CASES))]))
    workers.close()


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_worker_that_is_closed_ends_what_it_began(tmp_path: Path, is_busy: bool) -> None:
    """A worker closes the cluster that it launched."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"

    def run_case(case: int) -> int:
        begun.touch()
        if is_busy and case:
            time.sleep(60)
        return case

    workers = Workers(1, begin, run_case, ended.touch)
    for _ in workers.run([WorkerTask(None, iter(range(2)))]):
        if is_busy:
            break
    workers.close()
    assert begun.exists()
    assert ended.exists()


def test_workers_end_with_the_process_that_forked_them(tmp_path: Path) -> None:
    """Each worker holds the connections that were open when it was forked; one that kept them kept the others, too."""
    found = tmp_path / "workers"
    pid = os.fork()
    if pid == 0:
        workers = Workers(3, begin, doubled, end)
        found.write_text(" ".join(str(worker.process.pid) for worker in workers._workers))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + 30
    left = [Path(f"/proc/{worker}/cmdline") for worker in found.read_text().split()]
    while (left := [path for path in left if is_alive(path)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def is_alive(cmdline: Path) -> bool:
    try:
        return bool(cmdline.read_bytes())  # empty for a zombie
    except FileNotFoundError:
        return False
