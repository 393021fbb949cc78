"""The judge `suite`: the cases of the conformance suite, in virtual time, on three brokers (`fuzz/virtual`).

The cases are collected once, in this process. All of them run once on the correct broker, while the lines that each
executes are recorded; a case that does not pass here judges no mutant. A mutant is tried with the cases that execute
the changed line, in the order in which they may kill it: the recorded killer, then those of the areas of its package,
that killed a mutant nearby, or that share words with this one (`relevance`).
"""

import os
import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from highwater import conformance, fuzz
from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.connection import access_to
from highwater.conformance.plugin import ADVERTISED_VERSIONS, RESULT, TARGET
from highwater.conformance.runner import CASES, SUITE_INI
from highwater.conformance.running.selection import case_of
from highwater.conformance.running.verdicts import BROKEN, CaseResult, CaseVerdict
from highwater.conformance.targets import launch_target
from highwater.errors import UsageError
from highwater.mutants.table import NamedMutant
from highwater.power.generated import importers_of, loaded
from highwater.power.lines import CaseLines, LinesFile, source_hash, traced, without_repetitions
from highwater.power.relevance import Relevance
from highwater.power.store import FOLDER, Store, digest_of, read_killers
from highwater.power.trial import Judge
from highwater.results import progress

BROKERS: Final = 3
NAME: Final = f"simulator:{BROKERS}"
AREAS: Final[dict[str, tuple[str, ...]]] = {
    "replication": ("PRD", "FET", "LST", "IDM", "REP"), "groups": ("GRP", "OFF"), "transactions": ("TXN", "IDM"),
    "storage": ("PRD", "LST", "FET", "IDM", "TXN"), "controller": ("ADM", "MD"), "admin": ("ADM",),
    "security": ("SEC",), "configuration": ("ADM",), "wire": ("API", "FRM", "PRD"), "connections": ("FRM", "SEC"),
}  # fmt: skip
"""By package of the broker, the areas of clauses that are about it."""
WITH_CODECS: Final = re.compile(r"highwater\.(reference|fuzz)\..*")
CORE: Final = re.compile(r"highwater\.(reference\.(?!wire\b|client\b)|fuzz\.).*")
TRACED_AT_ONCE: Final = 150
TRACING_LIMIT_S: Final = 300
LIMIT_S: Final = 15.0
TIMES: Final = 10
"""A case may take so many times what it takes on the correct broker, and at least LIMIT_S."""


class SuiteJudge(Judge):
    """The cases as checks."""

    name = "suite"

    def __init__(self, store: Store, folder: Path = FOLDER) -> None:
        self._store, self._path = store, folder / "lines.msgpack"
        self._killers = read_killers(self.name)
        self._error: BaseException | None = None
        self.items: dict[str, pytest.Item] = {}

    # -- the session of pytest -----------------------------------------------------------------------

    def session(self, work: Callable[[], None]) -> None:
        """Collect all cases, trace those that are new, then call `work`; raises what it raises."""
        self._work = work
        command = [
            "-c", str(SUITE_INI), f"--rootdir={CASES.parent}", str(CASES), "-p", "highwater.conformance.plugin",
            "--hw-audit",
            "-o", "addopts=--import-mode=importlib -p no:cacheprovider --strict-markers", "-p", "no:xdist",
            "-p", "pytest_timeout", "-o", "timeout=0", "-p", "no:terminal", "-s", "--assert=plain",
        ]  # fmt: skip
        code = pytest.main(command, plugins=[self])
        if self._error is not None:
            raise self._error
        if not self.items:
            raise UsageError(f"the cases could not be collected (pytest exit code {code})", where=str(CASES))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._config = session.config
        self._config.option.hw_target = NAME  # only now, or the plugin of the suite would open the target
        try:
            self.items = {case_of(item)[0]: item for item in session.items}
            self._ends = {case_of(item)[0] for item in ends_of_sweeps(session.items)}
            self.lines = self._trace()
            self._relevance = Relevance(self.items)
            import_module("highwater.fuzz.virtual.target")  # once, for all forks
            self._work()
        except BaseException as error:
            self._error = error
        return True

    # -- the judge -----------------------------------------------------------------------------------

    def version(self) -> str:
        return self._version

    @cached_property
    def _version(self) -> str:
        return digest_of([Path(conformance.__path__[0]), Path(fuzz.__path__[0]) / "virtual"])

    def plan(self, mutant: NamedMutant) -> list[str]:
        module = mutant.mutant.module
        found = self.lines.may_notice(module, mutant.lines(), at_import=mutant.is_at_import)
        concerned = {
            case: (parameters_of(self.items[case]), number)
            for case, number in found.items()
            if self.lines.cases[case].is_passed
        }
        return self._in_order(mutant, concerned)

    def _in_order(self, mutant: NamedMutant, concerned: Mapping[str, tuple[str, int]]) -> list[str]:
        """Return the cases with the likely killers first; the recorded killer is the first.

        At the end are those that run the same function and execute the same lines as another one, such as the versions
        in the middle of a sweep.
        """
        areas = AREAS.get(mutant.mutant.module.split(".")[2], ())
        killer = self._killers.get(mutant.name)
        kills = self._store.kills_near(mutant.mutant.module, mutant.mutant.line)
        relevance = self._relevance.of(mutant)

        def rank(case: str) -> float:
            return -(kills.get(case, 0.0) + relevance[case] + (case.partition("-")[0] in areas))

        different = set(without_repetitions({case: key for case, key in concerned.items() if case in self._ends}))
        ordered = sorted(concerned, key=lambda case: (case not in different, rank(case)))
        if not ordered or killer is None or not self.is_proven(killer.check):
            return ordered
        return [killer.check, *(case for case in ordered if case != killer.check)]

    def reloaded(self, module: str) -> set[str]:
        """Return all of the broker for a mutant of the codecs, which register themselves; else what imports it."""
        return loaded(WITH_CODECS) if ".wire." in module else importers_of(module, loaded(CORE))

    def begin(self, mutant: NamedMutant | None) -> None:
        target = launch_target(NAME, None, [])
        self._config.stash[TARGET] = target
        address = target.bootstrap.split(",")[0]
        self._config.stash[ADVERTISED_VERSIONS] = advertised_versions(address, access=access_to(target))

    def check(self, name: str) -> str:
        result = self.run(name)
        return f"{result.verdict}: {result.message}" if result.verdict in BROKEN else ""

    def run(self, name: str) -> CaseResult:
        """Run a case on the broker that is loaded."""
        item = self.items[name]
        runtestprotocol(item, log=False, nextitem=None)
        return item.stash[RESULT]

    def limit_s(self, name: str) -> float:
        known = self.lines.cases.get(name)
        return max(LIMIT_S, TIMES * known.cpu_s if known else 0.0)

    def is_proven(self, name: str) -> bool:
        return name in self.lines.cases and self.lines.cases[name].is_passed

    # -- which case executes what --------------------------------------------------------------------

    def _trace(self) -> LinesFile:
        """Return the lines of all cases on the correct broker; only cases that are not yet in the file are run."""
        known = LinesFile.read(self._path)
        known.keep(self.items)
        missing = [case for case, item in self.items.items() if known.lacks(case, item)]
        long = [case for case in missing if self.items[case].get_closest_marker("long")]
        short = [case for case in missing if case not in long]
        parts = [short[first : first + TRACED_AT_ONCE] for first in range(0, len(short), TRACED_AT_ONCE)]
        parts += [[case] for case in long]
        with progress("tracing cases", len(parts)) as step:
            for part in parts:
                self._trace_some(part, known)
                known.write(self._path)
                step()
        return known

    def _trace_some(self, cases: Sequence[str], known: LinesFile) -> None:
        with TemporaryFile() as file:
            pid = os.fork()
            if not pid:
                try:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                    limit_s = TRACING_LIMIT_S if len(cases) > 1 else round(LIMIT_S)
                    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
                    self.begin(None)
                    file.write(msgspec.msgpack.encode(self._traced(cases)))
                    file.flush()
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            file.seek(0)
            data = file.read()
        if not data and len(cases) > 1:
            raise UsageError("the cases could not be traced: the process that ran them ended", hint="run it again")
        if not data:  # one that takes too long to judge mutants
            known.add(cases[0], CaseLines(source_hash(self.items[cases[0]]), LIMIT_S, is_passed=False), {})
            return
        for case, found, lines in msgspec.msgpack.decode(
            data, type=list[tuple[str, CaseLines, dict[str, frozenset[int]]]]
        ):
            known.add(case, found, lines)

    def _traced(self, cases: Sequence[str]) -> list[tuple[str, CaseLines, dict[str, frozenset[int]]]]:
        found: dict[str, CaseLines] = {}

        def run(case: str) -> None:
            started = time.process_time()
            result = self.run(case)
            is_passed = result.verdict is CaseVerdict.PASS
            found[case] = CaseLines(source_hash(self.items[case]), time.process_time() - started, is_passed)

        lines = traced(cases, run)
        return [(case, found[case], lines[case]) for case in cases]


def parameters_of(item: pytest.Item) -> str:
    """Return the function of a case with its parameters other than the API version."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params.items() if callspec else ()
    function = item.nodeid.partition("[")[0]
    return " ".join([function, *(f"{name}={value}" for name, value in parameters if name != "version")])


def ends_of_sweeps(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the cases; of those that differ in the API version only, the lowest and highest that exist."""
    oldest = {parameters_of(item): item for item in reversed(items)}
    newest = {parameters_of(item): item for item in items}
    kept = {*oldest.values(), *newest.values()}
    return [item for item in items if item in kept]
