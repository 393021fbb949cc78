"""The judges `fuzzer` and `explorer`: one run of `highwater fuzz reference`, or of `highwater explore simulator:3`.

The broker is a copy of the package with the mutant. For the fuzzer it runs as processes, so the time of a run is that
of the clock. The control comes first: what the tool reports about the correct broker counts for no mutant. Findings and
output of each run are kept in results/power, in the folder of the judge.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from highwater import conformance, fuzz
from highwater.errors import ExitCode, UsageError
from highwater.mutants.table import NamedMutant
from highwater.power.store import FOLDER, digest_of
from highwater.power.trial import Judge
from highwater.soak.compiled.build import copy_sources
from highwater.temporary import temporary_folder

SECONDS: Final = 60
LATE_S: Final = 240
"""How much longer than its time a run may take: restarts, and what is examined at its end."""
CONTROL: Final = "control"
SEED: Final = 1


class Reported(msgspec.Struct):
    """What a run reported; `left` are failures that it saw and did not examine."""

    findings: list[str]
    left: list[str]

    def besides(self, control: "Reported") -> list[str]:
        """Return the findings of this run that the control lacks, by oracle and API; what was left finds nothing."""
        known = {_kind(finding) for finding in control.findings}
        return [finding for finding in self.findings if _kind(finding) not in known]


def _kind(finding: str) -> str:
    """Return oracle and API of a finding such as `deadline-Produce-v4-1`."""
    return finding.partition(":")[0].rpartition("-v")[0]


class FuzzerJudge(Judge):
    """One run of the fuzzer as the only check."""

    name = "fuzzer"
    command: ClassVar[tuple[str, ...]] = ("fuzz", "reference")

    def __init__(self, seconds: int = SECONDS, folder: Path | None = None) -> None:
        self._seconds, self._folder = seconds, (folder or FOLDER / self.name).resolve()

    def session(self, work: Callable[[], None]) -> None:
        """Copy the package, so that all brokers differ from the same version, and fuzz the correct broker."""
        with temporary_folder() as scratch:
            self._sources = scratch / "sources"
            copy_sources(self._sources)
            self._control = self._fuzz(self._sources, CONTROL, SEED)
            if self._control.left:
                raise UsageError("the run of the correct broker is not clean", where="; ".join(self._control.left))
            work()

    def version(self) -> str:
        return self._version

    @cached_property
    def _version(self) -> str:
        return digest_of([Path(fuzz.__path__[0]), Path(conformance.__path__[0])])

    def plan(self, mutant: NamedMutant) -> list[str]:
        return [f"seed {SEED}"]

    def reloaded(self, module: str) -> set[str]:
        return set()

    def begin(self, mutant: NamedMutant) -> None:
        self._mutant = mutant

    def check(self, name: str) -> str:
        resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command would ignore Ctrl-C, as this fork does
        with temporary_folder() as scratch:
            tree = scratch / "tree"
            shutil.copytree(self._sources, tree)
            plant(tree, self._mutant)
            reported = self._fuzz(tree, self._mutant.name, int(name.split()[1]))
        return "; ".join(reported.besides(self._control))

    def limit_s(self, name: str) -> float:
        return self._seconds + LATE_S

    def is_proven(self, name: str) -> bool:
        return True  # by the control

    def _fuzz(self, tree: Path, name: str, seed: int) -> Reported:
        """Fuzz the reference broker of a tree; findings and output are kept."""
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "highwater", *self.command, "--seconds", str(self._seconds)]
        command += ["--seed", str(seed), "--json"]
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"},
            capture_output=True, text=True, timeout=self._seconds + LATE_S, check=False,
        )  # fmt: skip
        (folder / "fuzz.json").write_text(done.stdout)
        (folder / "stderr.txt").write_text(done.stderr)
        if done.returncode not in {ExitCode.HELD, ExitCode.VIOLATED} or not done.stdout:
            return Reported([], [f"the run ended with exit code {done.returncode}: see stderr.txt in {folder}"])
        return self.reported(msgspec.json.decode(done.stdout))

    def reported(self, summary: dict[str, Any]) -> Reported:
        """Return what the JSON of a run reports."""
        found = [f"{finding['id']}: {finding['message']}" for finding in summary["findings"]]
        return Reported(found, [f"not examined: {name}" for name in summary["unexamined"]])


class ExplorerJudge(FuzzerJudge):
    """One run of drawn walks in virtual time, which ends with the first difference, as the only check."""

    name = "explorer"
    command = ("explore", "simulator:3", "--most", "1")

    def reported(self, summary: dict[str, Any]) -> Reported:
        return Reported([f"{each['program']}: {each['failure']}" for each in summary["differences"]], [])


def plant(tree: Path, mutant: NamedMutant) -> None:
    """Write the mutant into a copy of the package."""
    path = tree.joinpath(*mutant.mutant.module.split(".")).with_suffix(".py")
    if not path.exists():
        raise UsageError(f"the copy has no module {mutant.mutant.module}", where=str(tree))
    path.write_text(mutant.mutant.source)
