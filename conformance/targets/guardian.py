"""Kill the processes of a launcher that has ended: `python -m highwater.conformance.targets.guardian`.

Reads process ids from standard input, one a line. The input ends when the launcher ends, even if it is killed; then the
process group of each id is killed.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the launcher handles them; its end closes our input
        signal.signal(number, signal.SIG_IGN)
    for pid in [int(line) for line in sys.stdin]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
