"""The command `python -m highwater.soak.client_suites [SUITE]... [--runs N]`.

Prints what passed, failed and was skipped in each run; the output of a run is kept in results/.  Exit code 1 if a test
failed.
"""

import sys
import time
from typing import Annotated

import typer

from highwater.errors import ExitCode
from highwater.names import unknown_name
from highwater.results import new_folder
from highwater.soak.client_suites.suites import SUITES


def client_suites(
    suites: Annotated[list[str] | None, typer.Argument(help="Suites; all if none is named.")] = None,
    runs: Annotated[int, typer.Option(help="So many runs, each on a new cluster.")] = 1,
) -> None:
    """Run the suites, and print a line for each run."""
    folder, failed = new_folder("clients"), 0
    for name in suites or SUITES:
        if name not in SUITES:
            raise unknown_name("suite", name, SUITES, "python -m highwater.soak.client_suites --help")
        for number in range(1, runs + 1):
            log, started = folder / f"{name}-{number}.log", time.monotonic()
            results = SUITES[name].run(log)
            failed += len(results.failed)
            took = f"{time.monotonic() - started:.0f} s"
            print(f"{name} {SUITES[name].version}, run {number}: {results} in {took}; {log}", flush=True)
            for test in results.failed:
                print(f"    {test}", flush=True)
    sys.exit(ExitCode.VIOLATED if failed else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(client_suites)
