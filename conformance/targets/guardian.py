"""Kill the processes of a launcher that has ended: `python -m highwater.conformance.targets.guardian`.

Reads one process id a line from standard input. At the end of the input, which is when the launcher ends for whatever
reason, it kills the process group of each.
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
