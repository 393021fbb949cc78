"""Run client libraries' own test suites on our cluster: `python -m highwater.soak.client_suites [SUITE]... [--runs N]`.

The suites come with the libraries, from the Go module proxy.  Prints what passed, failed and was skipped in each run;
the output of a run is kept in results/.  Exit code 1 if a test failed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import ExitCode, UsageError
from highwater.names import unknown_name
from highwater.results import new_folder

RESULT: Final = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
TIMEOUT_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of a Go package that match `tests`; `bootstrap` is the variable for the brokers' addresses."""

    module: str
    version: str
    package: str
    tests: str
    bootstrap: str
    settings: tuple[tuple[str, str], ...] = ()


FRANZ_GO: Final = (("KGO_TEST_RF", "3"), ("KGO_TEST_RECORDS", "20000"), ("KGO_LOG_LEVEL", "none"))
SUITES: Final[dict[str, Suite]] = {
    "franz-go": Suite("github.com/twmb/franz-go", "v1.22.2", "./pkg/kgo", ".", "KGO_SEEDS", FRANZ_GO),
    "franz-go-transactions": Suite(
        "github.com/twmb/franz-go", "v1.22.2", "./pkg/kgo", "TestTxnEtl", "KGO_SEEDS", FRANZ_GO
    ),
}


def run_suite(suite: Suite, bootstrap: str, log: Path) -> Counter[str]:
    """Run a suite, write its output to `log`, and count its results; "FAIL" is at least 1 if the run failed."""
    source = _downloaded(suite)
    program = log.with_suffix(".test").resolve()
    _go("test", "-c", "-o", str(program), suite.package, folder=source)
    environment = {**os.environ, **dict(suite.settings), suite.bootstrap: bootstrap}
    with log.open("w") as output:
        ended = subprocess.run(
            [program, "-test.run", suite.tests, "-test.v", f"-test.timeout={TIMEOUT_S}s"],
            cwd=source / suite.package, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    program.unlink()
    found = Counter(match[1] for match in RESULT.finditer(log.read_text(errors="replace")))
    found["FAIL"] += bool(ended.returncode and not found["FAIL"])
    return found


def _downloaded(suite: Suite) -> Path:
    """Return the folder of a module at its version."""
    return Path(json.loads(_go("mod", "download", "-json", f"{suite.module}@{suite.version}", folder=Path("/")))["Dir"])


def _go(*arguments: str, folder: Path) -> str:
    program = shutil.which("go")
    if program is None:
        raise UsageError("go is not on PATH", hint="install Go 1.24 or later")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"go {arguments[0]}: {(done.stderr or done.stdout).strip()}", hint="check the network")
    return done.stdout


def client_suites(
    suites: Annotated[list[str] | None, typer.Argument(help="Suites; all if none is named.")] = None,
    runs: Annotated[int, typer.Option(help="So many runs, each on a new cluster of three brokers.")] = 1,
) -> None:
    """Run the suites, and print a line for each run."""
    folder, failed = new_folder("clients"), 0
    for name in suites or SUITES:
        if name not in SUITES:
            raise unknown_name("suite", name, SUITES, "python -m highwater.soak.client_suites --help")
        for number in range(1, runs + 1):
            log, started = folder / f"{name}-{number}.log", time.monotonic()
            with ReferenceCluster(3) as cluster:
                found = run_suite(SUITES[name], cluster.bootstrap, log)
            failed += found["FAIL"]
            counts = f"{found['PASS']} passed, {found['FAIL']} failed, {found['SKIP']} skipped"
            took = f"{time.monotonic() - started:.0f} s"
            print(f"{name} {SUITES[name].version}, run {number}: {counts} in {took}; {log}", flush=True)
            for result, test in RESULT.findall(log.read_text(errors="replace")):
                if result == "FAIL":
                    print(f"    {test}", flush=True)
    sys.exit(ExitCode.VIOLATED if failed else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(client_suites)
