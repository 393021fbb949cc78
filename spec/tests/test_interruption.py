"""What is interrupted ends, wherever the interruption found it."""

import signal
import threading

import pytest

from spec.interruption import ENDS, interruptible

LIMIT_S = 60.0


class Finalized:
    """Is being finalized when the signal arrives."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", ENDS, ids=lambda number: signal.Signals(number).name)
def test_an_interruption_that_a_finalizer_drops_comes_again(number: signal.Signals) -> None:
    def work() -> None:
        held = Finalized(number)
        del held
        threading.Event().wait(LIMIT_S)

    with pytest.raises(KeyboardInterrupt), interruptible():
        work()
