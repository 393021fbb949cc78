"""Compile and run the tests of a Go module, which comes from the Go module proxy."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.soak.client_suites.results import FAILED, PASSED, SKIPPED, Results
from highwater.temporary import temporary_folder

OUTCOME: Final = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
OUTCOMES: Final = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
TIMEOUT_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class GoSuite:
    """The tests of a Go module that match `tests`, except those of `excluded` (a pattern of -test.skip: the reason).

    `clusters` starts the brokers and yields the variables of the environment that say where they are.
    """

    module: str
    version: str
    clusters: Callable[[], AbstractContextManager[Mapping[str, str]]]
    packages: tuple[str, ...] = (".",)
    tests: str = "."
    tags: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)

    def run(self, log: Path) -> Results:
        """Run the tests on new brokers, and write their output to `log`."""
        source, results = _downloaded(self.module, self.version), Results()
        with temporary_folder() as folder, log.open("w") as output:
            programs = {package: self._compiled(source, package, folder) for package in self.packages}
            with self.clusters() as addresses:
                environment = {**os.environ, **self.environment, **addresses}
                for package, program in programs.items():
                    started = output.tell()
                    ended = subprocess.run(
                        [program, "-test.v", f"-test.run={self.tests}", f"-test.timeout={TIMEOUT_S}s", *self._skip()],
                        cwd=source / package, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False,
                    )  # fmt: skip
                    output.seek(0, os.SEEK_END)
                    found = outcomes(log.read_text(errors="replace")[started:])
                    if ended.returncode and not found.failed:
                        found.add(FAILED, f"{package} ended with code {ended.returncode}")
                    results.extend(found)
        return results

    def _skip(self) -> list[str]:
        return [f"-test.skip={'|'.join(self.excluded)}"] if self.excluded else []

    def _compiled(self, source: Path, package: str, folder: Path) -> Path:
        """Return the compiled tests of a package.

        The module's folder is read-only, and some modules lack the checksums of what only their tests import: Go writes
        these to a copy of the module file.
        """
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(source / name, folder / name)
        program = folder / f"{package.strip('./').replace('/', '-') or 'root'}.test"
        go("test", "-mod=mod", f"-modfile={folder / 'go.mod'}", "-tags", self.tags, "-c", "-o", str(program), package,
           folder=source)  # fmt: skip
        return program


def outcomes(output: str) -> Results:
    """Return the results in the output of `go test -v`."""
    results = Results()
    for outcome, name in OUTCOME.findall(output):
        results.add(OUTCOMES[outcome], name)
    return results


def _downloaded(module: str, version: str) -> Path:
    return Path(json.loads(go("mod", "download", "-json", f"{module}@{version}", folder=Path("/")))["Dir"])


def go(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run the go command and return its output; raise UsageError if it is missing or fails."""
    program = shutil.which("go")
    if program is None:
        raise UsageError("go is not on PATH", hint="install Go 1.24 or later")
    done = subprocess.run(
        [program, *arguments], cwd=folder, env={**os.environ, **(environment or {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise UsageError(f"go {arguments[0]}: {(done.stderr or done.stdout).strip()}", hint="check the network")
    return done.stdout
