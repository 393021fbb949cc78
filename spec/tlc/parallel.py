"""Runs of TLC at the same time: an interruption stops them all, and none is taken for a result."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

from highwater.signals import interruptible
from highwater.spec.tlc.run import stop_all

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item], jobs: int = 0) -> list[Result]:
    """Return the results in the order of the items; `jobs` threads, 0 is one a core.

    On an exception, or if the program is interrupted or (in the main thread) terminated, TLC is stopped and no other
    run begins.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    with (
        interruptible() if in_main_thread else nullcontext(),
        ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool,
    ):
        try:
            return list(pool.map(function, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise
