"""The judge `simulator`: seeds of `highwater simulate` with faults and invariants, audited, and the state machines.

A check is a run, such as `seed 3`, or a machine, such as `machine log`. There is always a next seed, so a mutant that
is not found is `unfinished`: the limit of processor time ends its trial.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from hypothesis import Phase

from highwater import conformance, fuzz
from highwater.mutants.table import NamedMutant
from highwater.power.generated import loaded
from highwater.power.store import digest_of, read_killers
from highwater.power.trial import Judge

MACHINES_OF: Final = {
    "storage": ("log",),
    "store": ("metadata store",),
    "transactions": ("log",),
}
"""The state machines that run the code of a package."""
MACHINE: Final = "machine"
SEED: Final = "seed"
MACHINES_AFTER: Final = 10
"""Seeds that run before the machines."""
RELOADED: Final = re.compile(r"highwater\.(reference|conformance|fuzz|reports|commands)(\..*)?")
SEEDS: Final = 1_000_000
PROGRAMS: Final = 2
"""Clients of a run that run programs of the suite."""
LIMIT_S: Final = 30.0


class SimulatorJudge(Judge):
    """The runs of the simulator as checks."""

    name = "simulator"

    def __init__(self) -> None:
        self._killers = read_killers(self.name)

    def version(self) -> str:
        return self._version

    @cached_property
    def _version(self) -> str:
        return digest_of([Path(fuzz.__path__[0]), Path(conformance.__path__[0])])

    def plan(self, mutant: NamedMutant) -> Iterator[str]:
        """Yield the check that found the mutant when the score was recorded, then all others, seed after seed."""
        killer = self._killers.get(mutant.name)
        if killer is not None:
            yield killer.check
        package = mutant.mutant.module.removeprefix("highwater.reference.").partition(".")[0]
        for seed in range(SEEDS):
            if seed == MACHINES_AFTER:
                yield from (f"{MACHINE} {name}" for name in MACHINES_OF.get(package, ()))
            yield f"{SEED} {seed}"

    def reloaded(self, module: str) -> set[str]:
        return loaded(RELOADED)  # all, because state machines register themselves

    def begin(self, mutant: NamedMutant) -> None:
        from highwater.commands import run_audit
        from highwater.fuzz.machines import all as machines
        from highwater.fuzz.simulator import cluster, search

        self._audit_run, self._machines, self._cluster, self._search = run_audit.audit_run, machines, cluster, search

    def check(self, name: str) -> str:
        kind, _, what = name.partition(" ")
        if kind == MACHINE:
            return self._run_machine(what)
        swarm = self._cluster.Settings(swarm=True, programs=PROGRAMS)
        violation = self._search.run_seed(int(what), swarm, audit=self._audit_run).violation
        return f"{violation.invariant}: {violation.message}" if violation is not None else ""

    def _run_machine(self, name: str) -> str:
        try:
            self._machines.run_machine(name, seed=1, phases=(Phase.generate,))
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"
        return ""

    def limit_s(self, name: str) -> float:
        return LIMIT_S
