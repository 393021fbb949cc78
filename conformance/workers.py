"""Run cases side by side, in processes that are forked after one collection.

Each worker has all cases in memory. The process that collected them hands out one at a time, because durations differ
by a factor of a thousand. It forks before it opens the target: a fork copies no threads.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Final

STOP_TIMEOUT_S: Final = 5.0
_FORK: Final = multiprocessing.get_context("fork")

Begin = Callable[[Any], None]
RunCase = Callable[[int], Any]


@dataclass(eq=False, slots=True)
class Worker:
    """A worker process, our end of its connection, and the number of the case that it runs."""

    process: Any
    connection: "Connection[Any, Any]"
    case: int | None = None


class Ended(Exception):
    """Raised when no worker is left to run the remaining cases."""


class Workers:
    """`count` processes that run cases by their number.

    Each calls `begin` once with the value given to `run`, then `run_case` with each number that it gets.
    """

    def __init__(self, count: int, begin: Begin, run_case: RunCase) -> None:
        assert count > 0
        self._workers: list[Worker] = []
        for _ in range(count):
            ours, theirs = _FORK.Pipe()
            # A copy of our ends in a later worker would keep an earlier one waiting after we were killed.
            others = [*(worker.connection for worker in self._workers), ours]
            process = _FORK.Process(target=_serve, args=(theirs, others, begin, run_case), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(Worker(process, ours))

    def run(self, given: object, cases: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Yield each case with what `run_case` returned for it, or with None if its worker ended.

        A caller that stops the iteration hands out no more cases. Raises Ended if no worker is left.
        """
        waiting = iter(cases)
        for worker in self._workers:
            worker.connection.send(given)
            _hand_out(worker, waiting)
        while busy := [worker for worker in self._workers if worker.case is not None]:
            ready = wait([worker.connection for worker in busy])
            for worker in (worker for worker in busy if worker.connection in ready):
                case = worker.case
                assert case is not None
                outcome = self._outcome(worker)
                yield case, outcome
                if worker in self._workers:
                    _hand_out(worker, waiting)
        if next(waiting, None) is not None:
            raise Ended("every worker has ended")

    def close(self) -> None:
        """End all workers, also those that run a case."""
        for worker in self._workers:
            worker.connection.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(STOP_TIMEOUT_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def _outcome(self, worker: Worker) -> Any:
        worker.case = None
        try:
            return worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.connection.close()
            worker.process.join()
            return None


def _hand_out(worker: Worker, waiting: Iterator[int]) -> None:
    worker.case = next(waiting, None)
    if worker.case is not None:
        worker.connection.send(worker.case)


def _serve(
    connection: "Connection[Any, Any]", others: Sequence["Connection[Any, Any]"], begin: Begin, run_case: RunCase
) -> None:
    """Serve until the other end is closed; an interrupted run ends the workers (`Workers.close`)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    try:
        begin(connection.recv())
        while True:
            connection.send(run_case(connection.recv()))
    except (EOFError, OSError):
        return
