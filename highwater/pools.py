"""Pools of processes that end with the process that made them, also if it is interrupted or killed."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Final

PR_SET_PDEATHSIG: Final = 1


@contextmanager
def process_pool(workers: int = 0, start: str | None = None) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of `workers` processes, 0 is one for each core; `start` is how multiprocessing starts them.

    An exception in the block, an interruption for example, kills them at once. In the end waiting tasks are cancelled.
    """
    before = set(active_children())
    pool = ProcessPoolExecutor(workers or os.cpu_count() or 1, get_context(start), end_with_parent)
    try:
        yield pool
    except BaseException:
        for process in set(active_children()) - before:
            process.kill()  # it would go on with its task to the end
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def end_with_parent() -> None:
    """Let the parent decide what an interruption means, which in a terminal reaches all processes, and end with it.

    Linux sends SIGKILL when the thread ends that started this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":  # elsewhere the processes of a parent that was killed wait for more tasks for ever
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        parent = parent_process()
        if parent is not None and not parent.is_alive():
            os._exit(1)  # it ended before it was watched
