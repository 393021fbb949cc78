"""The program `highwater`, which reports in one line that another distribution hides the package `highwater`."""

import sys
from typing import Final

from highwater_kafka.collision import collision_line

USAGE: Final = 2
"""`ExitCode.USAGE`, which cannot be imported where this is needed."""


def main() -> None:
    """Run one command; exit code 2 if the package `highwater` is not ours, so that its commands cannot be imported."""
    try:
        from highwater.command_line import main as run
    except Exception:  # whatever the other package raises, or lacks
        found = collision_line()
        if found is None:
            raise
        print(found, file=sys.stderr)
        sys.exit(USAGE)
    run()
