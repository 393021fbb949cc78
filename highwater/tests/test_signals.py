"""An interrupted program ends, wherever the interruption occurs."""

import signal
import threading

import pytest

from highwater.signals import POLL_INTERVAL_S, TERMINATION_SIGNALS, interruptible, wait

LIMIT_S = 60.0


class Finalized:
    """An object that raises a signal during its finalization."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", TERMINATION_SIGNALS, ids=lambda number: signal.Signals(number).name)
def test_an_interruption_swallowed_by_a_finalizer_is_raised_again(number: signal.Signals) -> None:
    def work() -> None:
        held = Finalized(number)
        del held
        threading.Event().wait(LIMIT_S)

    with pytest.raises(KeyboardInterrupt), interruptible():
        work()


def test_a_wait_polls_repeatedly_and_ends_in_time() -> None:
    timeouts: list[float] = []

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            timeouts.append(timeout or 0.0)
            return super().wait(timeout)

    event = Watched()
    assert not wait(event, 2.5 * POLL_INTERVAL_S)
    assert len(timeouts) >= 3
    assert max(timeouts) <= POLL_INTERVAL_S
    event.set()
    assert wait(event, LIMIT_S)
    assert not wait(threading.Event(), -1.0)
