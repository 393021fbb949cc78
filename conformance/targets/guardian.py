"""Ends processes when the one that started them is gone, however it went: `python -m conformance.targets.guardian`.

It reads a process id a line; at the end of its input it kills those that still run, and what they started.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the one we watch, whose end we shall see
        signal.signal(number, signal.SIG_IGN)
    for pid in [int(line) for line in sys.stdin]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
