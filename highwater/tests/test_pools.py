"""A pool of processes ends with the process that made it, in whatever way that ends."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import pytest

from highwater.pools import process_pool
from highwater.tests.running import members, wait_until

LONG_S = 600.0
PATIENCE_S = 30.0
SLEEPING = """
import time
from highwater.command_line import failure_in_one_line
from highwater.pools import process_pool
from highwater.signals import interruptible

with interruptible(), failure_in_one_line("audit"), process_pool(2, {start!r}) as pool:
    list(pool.map(abs, range(8)))  # a process that has not begun would end by itself
    tasks = [pool.submit(time.sleep, {seconds}) for _ in range(4)]
    time.sleep(1)
    print("ready", flush=True)
    tasks[0].result()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_of_a_pool_is_left(start: str, number: signal.Signals) -> None:
    script = SLEEPING.format(start=start, seconds=LONG_S)
    parent = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "ready\n"
        assert wait_until(lambda: len(members(parent.pid)) == (3 if start == "fork" else 4))  # one tracks resources
        parent.send_signal(number)
        parent.wait(PATIENCE_S)
        assert wait_until(lambda: not members(parent.pid)), members(parent.pid)
    finally:
        for member in members(parent.pid):
            os.kill(int(member), signal.SIGKILL)
        parent.stdout.close()


def test_an_exception_does_not_wait_for_running_tasks() -> None:
    def divided() -> float:
        with process_pool(2) as pool:
            pool.submit(time.sleep, LONG_S)
            return 1 / len(active_children()[2:])

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        divided()
    assert time.monotonic() - began < LONG_S / 2


def test_a_block_that_ends_cancels_what_waits(tmp_path: Path) -> None:
    with process_pool(1) as pool:
        for number in range(20):
            pool.submit(_touch_slowly, tmp_path / str(number))
    assert len(list(tmp_path.iterdir())) < 20


def _touch_slowly(path: Path) -> None:
    time.sleep(0.2)
    path.touch()
