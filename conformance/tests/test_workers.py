"""Workers that are forked after one collection."""

import os
import signal
import time
from pathlib import Path

import pytest

from highwater.conformance.workers import Ended, Workers

CASES = range(12)
DIES = 3


def begin(_: object) -> None:
    pass


def doubled(case: int) -> int:
    return 2 * case


def dies_at_3(case: int) -> int:
    if case == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    return doubled(case)


def always_dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_each_case_runs_once() -> None:
    workers = Workers(3, begin, doubled)
    outcomes = list(workers.run(None, CASES))
    workers.close()
    assert sorted(outcomes) == [(case, 2 * case) for case in CASES]


def test_only_the_case_of_a_worker_that_dies_is_lost() -> None:
    workers = Workers(2, begin, dies_at_3)
    outcomes = dict(workers.run(None, CASES))
    workers.close()
    assert outcomes == {case: None if case == DIES else 2 * case for case in CASES}


def test_a_run_without_workers_does_not_look_complete() -> None:
    workers = Workers(2, begin, always_dies)
    with pytest.raises(Ended):
        list(workers.run(None, CASES))
    workers.close()


def test_workers_end_with_the_process_that_forked_them(tmp_path: Path) -> None:
    """Each worker holds the connections that were open when it was forked; one that kept them kept the others, too."""
    found = tmp_path / "workers"
    pid = os.fork()
    if pid == 0:
        workers = Workers(3, begin, doubled)
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
