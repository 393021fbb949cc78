"""Run cases side by side, in processes that are forked after one collection.

Each worker has all cases in memory. The process that collected them hands out one at a time, because durations differ
by a factor of a thousand. It forks before it opens the target: a fork copies no threads.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple

STOP_TIMEOUT_S: Final = 15.0
_FORK: Final = multiprocessing.get_context("fork")

Begin = Callable[[Any], None]
RunCase = Callable[[int], Any]
End = Callable[[], None]


class WorkerTask(NamedTuple):
    """What a worker gets at its start, and its cases; workers with the same iterator share its cases."""

    given: object
    cases: Iterator[int]


@dataclass(eq=False, slots=True)
class Worker:
    """A worker process, our end of its connection, its cases, and the number of the case that it runs.

    A worker without a case begins, or has ended if `is_idle`.
    """

    process: Any
    connection: "Connection[Any, Any]"
    cases: Iterator[int] = field(default_factory=lambda: iter(()))
    case: int | None = None
    is_idle: bool = True


class Ended(Exception):
    """Raised when no worker is left to run the remaining cases."""


class Workers:
    """`count` processes that run cases by their number.

    Each calls `begin` once with the value of its task, then `run_case` with each number that it gets, at last `end`.
    """

    def __init__(self, count: int, begin: Begin, run_case: RunCase, end: End) -> None:
        assert count > 0
        self._workers: list[Worker] = []
        for _ in range(count):
            ours, theirs = _FORK.Pipe()
            # A copy of our ends in a later worker would keep an earlier one waiting after we were killed.
            others = [*(worker.connection for worker in self._workers), ours]
            process = _FORK.Process(target=_serve, args=(theirs, others, begin, run_case, end), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(Worker(process, ours))

    def run(self, tasks: Sequence[WorkerTask]) -> Iterator[tuple[int, Any]]:
        """Yield each case with what `run_case` returned for it, or with None if its worker ended.

        There is a task for each worker. A worker that cannot begin leaves its cases to those that share them. A caller
        that stops the iteration hands out no more cases. Raises Ended if no worker is left for some.
        """
        for worker, task in zip(self._workers, tasks, strict=True):
            worker.cases, worker.is_idle = task.cases, False
            worker.connection.send(task.given)
        while busy := [worker for worker in self._workers if not worker.is_idle]:
            ready = wait([worker.connection for worker in busy])
            for worker in (worker for worker in busy if worker.connection in ready):
                case, outcome = worker.case, self._answer(worker)
                if case is not None:
                    yield case, outcome
                if worker in self._workers:
                    _hand_out(worker)
        if any(next(task.cases, None) is not None for task in tasks):
            raise Ended("the workers for the remaining cases have ended")

    def running(self) -> list[int]:
        """Return the cases that are being run."""
        return [worker.case for worker in self._workers if worker.case is not None]

    def close(self) -> None:
        """End all workers, also those that run a case."""
        for worker in self._workers:
            worker.connection.close()
            if not worker.is_idle:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join(STOP_TIMEOUT_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def _answer(self, worker: Worker) -> Any:
        """Return what `run_case` returned; None if the worker has begun or ended."""
        worker.case = None
        try:
            return worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.connection.close()
            worker.process.join()
            return None


def _hand_out(worker: Worker) -> None:
    worker.case = next(worker.cases, None)
    worker.is_idle = worker.case is None
    if worker.case is not None:
        worker.connection.send(worker.case)


def _serve(
    connection: "Connection[Any, Any]",
    others: Sequence["Connection[Any, Any]"],
    begin: Begin,
    run_case: RunCase,
    end: End,
) -> None:
    """Serve until the other end is closed; an interrupted run ends the workers (`Workers.close`)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for other in others:
        other.close()
    try:
        begin(connection.recv())
        connection.send(None)
        while True:
            connection.send(run_case(connection.recv()))
    except (EOFError, OSError, KeyboardInterrupt):
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end()
