"""A pytest plugin that collects the cases once and runs them on one cluster for each mutant.

    pytest.main([...], plugins=[MutantTrials(...)])

For a mutant the cases that execute its line are run in the order in which they may kill it: those of the areas of its
package, that killed a mutant nearby, or share words with this one (`relevance`). The first
of these run on one broker, the first that wait or stop brokers on three, then all others.
A case kills if it fails twice, the second time on a new cluster and with a longer limit of every wait. A trial has a
limit of time, beyond which it is unfinished.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

from highwater.conformance.broker import advertised_versions
from highwater.conformance.connection import WaitLimit
from highwater.conformance.failures import TargetFailure
from highwater.conformance.patterns import covers
from highwater.conformance.plugin import ADVERTISED_VERSIONS, RESULT, TARGET, WAIT_LIMIT
from highwater.conformance.runner import CASES, SUITE_INI
from highwater.conformance.selection import case_of
from highwater.conformance.verdicts import BROKEN, NOT_TESTABLE, CaseResult, CaseVerdict
from highwater.errors import UsageError
from highwater.soak.mutation import Mutant
from highwater.soak.power.lines import CaseLines, LinesFile, Tracer, may_notice, source_hash, without_repetitions
from highwater.soak.power.mutants import BehaviourMutant, Need
from highwater.soak.power.nodes import MutantTarget, nothing_to_prepare, start_error
from highwater.soak.power.relevance import Relevance
from highwater.soak.power.results import Killer, Outcome, Results, Trial, read_killers
from highwater.temporary import temporary_folder

SIZES: Final = (1, 3)
FIRST_WAIT: Final = (1.5, 4.0)
SECOND_WAIT: Final = (4.0, 10.0)
UNKNOWN_S: Final = 2.0
Stages = list[tuple[int, list[str]]]
"""Limit of each wait: so many seconds, and so many times what the case takes on a correct broker."""
AREAS: Final[dict[str, tuple[str, ...]]] = {
    "replication": ("PRD", "FET", "LST", "IDM", "REP"), "groups": ("GRP", "OFF"), "transactions": ("TXN", "IDM"),
    "storage": ("PRD", "LST", "FET", "IDM", "TXN"), "controller": ("ADM", "MD"), "admin": ("ADM",),
    "security": ("SEC",), "configuration": ("ADM",), "wire": ("API", "FRM", "PRD"),
}  # fmt: skip
"""By package of the broker, the areas of clauses that are about it."""
ALLOWED: Final = frozenset({CaseVerdict.PASS, *NOT_TESTABLE})
REPLICATED: Final = frozenset({"ADM", "MD", "replication", "controller"})
"""Areas and packages whose cases run on three brokers too, after they passed on one; the others if they need three."""
LIKELY_QUICK, LIKELY_SLOW = 40, 5
"""So many of the likely killers run first, before all others."""
TRACED_AT_ONCE: Final = 100


class MutantTrials:
    """Runs what `work` asks for once the cases are collected."""

    def __init__(self, work: Callable[["MutantTrials"], None]) -> None:
        self._work = work
        self._wait_limit = WaitLimit()
        self.items: dict[str, pytest.Item] = {}
        self.error: BaseException | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._config = session.config
        self._config.option.hw_target = "reference"  # only now, or the plugin of the suite would launch a cluster
        self._config.stash[WAIT_LIMIT] = self._wait_limit
        self.items = ends_of_sweeps(session.items)
        try:
            self._work(self)
        except BaseException as error:
            self.error = error
        return True

    @contextmanager
    def target(self, size: int, mutant: Mutant | None, tracer: Tracer | None = None) -> Iterator[MutantTarget]:
        """Start a cluster for the cases; raises UsageError or TargetFailure if it does not start."""
        prepare = tracer.prepare if tracer else nothing_to_prepare
        try:
            target = MutantTarget(size, mutant, prepare)
        except UsageError:  # a busy machine; a mutant that cannot start does not start again either
            target = MutantTarget(size, mutant, prepare)
        outer = self._config.stash.get(TARGET, None)
        try:
            self._config.stash[TARGET] = target
            self._config.stash[ADVERTISED_VERSIONS] = advertised_versions(target.bootstrap.split(",")[0])
            yield target
        finally:
            if outer is None:
                del self._config.stash[TARGET]
            else:
                self._config.stash[TARGET] = outer
            if tracer:
                target.cluster.stop_slowly()
            target.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Without a limit: a broker that is not back when its case ends would fail the next case."""
        self._wait_limit.max_s = math.inf

    def run(self, case: str, wait_s: float = math.inf) -> CaseResult:
        """Run a case on the cluster with a limit of every wait."""
        item = self.items[case]
        self._wait_limit.max_s = wait_s
        if RESULT in item.stash:
            del item.stash[RESULT]
        runtestprotocol(item, log=False, nextitem=None)
        return item.stash[RESULT]


def collect_and(work: Callable[[MutantTrials], None]) -> None:
    """Collect all cases of the suite, then call `work`; raises what it raises."""
    trials = MutantTrials(work)
    command = [
        "-c", str(SUITE_INI), f"--rootdir={CASES.parent}", str(CASES), "-p", "highwater.conformance.plugin",
        "-o", "addopts=--import-mode=importlib -p no:cacheprovider --strict-markers",
        "-p", "no:xdist", "-p", "no:terminal", "-s", "--assert=plain",
    ]  # fmt: skip
    code = pytest.main(command, plugins=[trials])
    if trials.error is not None:
        raise trials.error
    if not trials.items:
        raise UsageError(f"the cases could not be collected (pytest exit code {code})", where=str(CASES))


def parameters_of(item: pytest.Item) -> str:
    """Return the function of a case with its parameters other than the API version."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params.items() if callspec else ()
    function = item.nodeid.partition("[")[0]
    return " ".join([function, *(f"{name}={value}" for name, value in parameters if name != "version")])


def ends_of_sweeps(items: Sequence[pytest.Item]) -> dict[str, pytest.Item]:
    """Return the cases by name; of those that differ in the API version only, the lowest and highest that exist."""
    oldest = {parameters_of(item): item for item in reversed(items)}
    newest = {parameters_of(item): item for item in items}
    kept = {*oldest.values(), *newest.values()}
    return {case_of(item)[0]: item for item in items if item in kept}


# -- which case executes what ---------------------------------------------------------------------------


def is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "cluster_fault"))


def trace(trials: MutantTrials, path: Path) -> LinesFile:
    """Return the lines of all cases on a correct cluster; only cases that are not yet in the file are run."""
    known = LinesFile.read(path).only(trials.items)
    missing = [case for case, item in trials.items.items() if known.lacks(case, item)]
    missing.sort(key=lambda case: is_slow(trials.items[case]))
    for first in range(0, len(missing), TRACED_AT_ONCE):
        _trace_some(trials, missing[first : first + TRACED_AT_ONCE], known)
        known.write(path)
    return known


def _trace_some(trials: MutantTrials, cases: Sequence[str], known: LinesFile) -> None:
    results: dict[str, CaseResult] = {}
    with temporary_folder() as folder:
        tracer = Tracer(folder)
        with trials.target(SIZES[-1], None, tracer) as target:
            for case in cases:
                tracer.begin(case, target.cluster.nodes)
                results[case] = trials.run(case)
                if results[case].verdict not in ALLOWED:  # a busy machine
                    results[case] = trials.run(case)
            nodes = target.cluster.nodes
            pids = {str(name): nodes.pid(name) for name in nodes.started() if nodes.is_running(name)}
        lines = tracer.collect(pids)
    known.start |= lines.get("", {})
    for case, result in results.items():
        if result.verdict not in ALLOWED:  # it is not used, and traced again the next time
            known.cases.pop(case, None)
            print(f"{case} fails on a correct broker and is left out: {result.verdict}: {result.message}", flush=True)
            continue
        known.cases[case] = CaseLines(
            source=source_hash(trials.items[case]), seconds=result.seconds, lines=lines.get(case, {}),
            is_slow=is_slow(trials.items[case]),
            stops_brokers=trials.items[case].get_closest_marker("cluster_fault") is not None,
            is_supported=result.verdict is CaseVerdict.PASS,
        )  # fmt: skip


# -- trials ---------------------------------------------------------------------------------------------


class Judge:
    """Tries mutants with the cases that execute the changed lines; `only_areas` leaves out those of other areas."""

    def __init__(
        self, trials: MutantTrials, lines: LinesFile, results: Results, suite: str, limit_s: float, *,
        only_areas: bool = False,
    ) -> None:  # fmt: skip
        self._trials, self._lines, self._results, self._suite = trials, lines, results, suite
        self._limit_s, self._only_areas = limit_s, only_areas
        self._killers, self._relevance = read_killers(), Relevance(trials.items)

    def stages(self, mutant: BehaviourMutant) -> list[tuple[int, list[str]]]:
        """Return sizes of clusters, each with the cases to run there; quick cases first."""
        module = mutant.mutant.module
        cases = {
            case: (parameters_of(self._trials.items[case]), self._lines.cases[case].of(module))
            for case in sorted(self._may_notice(mutant))
            if self._lines.cases[case].is_supported and self._concerns(mutant, case)
        }
        kept = self._in_order(mutant, without_repetitions(cases))
        quick = [case for case in kept if not self._lines.cases[case].is_slow]
        slow = [case for case in kept if self._lines.cases[case].is_slow]
        one, three = SIZES
        likely = [(one, quick[:LIKELY_QUICK]), (three, slow[:LIKELY_SLOW])]
        rest = [(one, quick[LIKELY_QUICK:]), (three, quick), (three, slow[LIKELY_SLOW:])]
        if mutant.needs is not Need.ONE_BROKER:
            likely = [(three, slow[:LIKELY_SLOW]), (three, quick[:LIKELY_QUICK])]
            rest = [(three, slow[LIKELY_SLOW:]), (three, quick[LIKELY_QUICK:])]
        order = [*likely, *rest]
        return [stage for stage in order if stage[1]]

    def _may_notice(self, mutant: BehaviourMutant) -> set[str]:
        """Return the cases that execute the changed line, and for what only a restart executes those that stop brokers.

        What a node executes while it loads its logs is not recorded for the case that restarted it.
        """
        direct = may_notice(self._lines, mutant.mutant.module, mutant.lines())
        if direct and mutant.needs not in {Need.RESTART, Need.FAILOVER}:
            return direct
        return direct | {case for case, found in self._lines.cases.items() if found.stops_brokers or found.is_slow}

    def _concerns(self, mutant: BehaviourMutant, case: str) -> bool:
        return not self._only_areas or case.partition("-")[0] in _areas(mutant)

    def _in_order(self, mutant: BehaviourMutant, cases: list[str]) -> list[str]:
        """Return the cases with the likely killers first; the recorded killer is the first."""
        areas, killer = _areas(mutant), self._killers.get(mutant.name)
        kills = self._results.kills_near(mutant.mutant.module, mutant.mutant.line)
        relevance = self._relevance.of(mutant)

        def rank(case: str) -> tuple[bool, float]:
            likely = kills.get(case, 0.0) + relevance[case] + (case.partition("-")[0] in areas)
            return killer is None or killer.case != case, -likely

        return sorted(cases, key=rank)

    def named_stages(self, mutant: BehaviourMutant, patterns: Sequence[str]) -> Stages:
        """Return the stages of the cases that patterns name, whatever lines they execute."""
        named = [
            case
            for case, item in self._trials.items.items()
            if any(covers(pattern, case, case_of(item)[1].id) for pattern in patterns)
        ]
        if not named:
            raise UsageError(f"no case is named like {', '.join(patterns)}", where="--case")
        sizes = SIZES if mutant.needs is Need.ONE_BROKER else SIZES[1:]
        return [(size, named) for size in sizes]

    def try_killer(self, mutant: BehaviourMutant) -> Trial:
        """Run only the case that killed the mutant before; without one the mutant survives."""
        killer = self._killers.get(mutant.name)
        return self.try_mutant(mutant, [(killer.brokers, [killer.case])] if killer else [])

    def try_mutant(self, mutant: BehaviourMutant, stages: Stages | None = None) -> Trial:
        """Run the cases until one kills the mutant; `stages` instead of those that execute its line."""
        start, ran, flaky, size = time.monotonic(), 0, "", 0
        stages, passed = self.stages(mutant) if stages is None else stages, set[str]()
        candidates = len({case for _, cases in stages for case in cases})

        def ended(outcome: Outcome, killer: str = "", message: str = "") -> Trial:
            return self._trial(mutant, outcome, killer, message, ran, candidates, size, time.monotonic() - start)

        for size, cases in stages:
            try:
                with self._trials.target(size, mutant.mutant):
                    for case in cases:
                        if size != SIZES[0] and case in passed and not _uses_replicas(mutant, case):
                            continue
                        if time.monotonic() - start > self._limit_s:
                            return ended(Outcome.UNFINISHED, message=flaky)
                        ran += 1
                        first = self._run(case, FIRST_WAIT)
                        if first.verdict in ALLOWED:
                            passed |= {case} if first.verdict is CaseVerdict.PASS else set()
                            continue
                        # On another cluster: the first may lack a broker that an earlier case stopped.
                        with self._trials.target(size, mutant.mutant):
                            second = self._run(case, SECOND_WAIT)
                        if first.verdict in BROKEN and second.verdict in BROKEN:
                            return ended(Outcome.KILLED, case, second.message)
                        flaky = f"{case}: {first.verdict}, then {second.verdict}: {first.message}"
            except (UsageError, TargetFailure) as error:
                message = start_error(error) if isinstance(error, UsageError) else str(error)
                return ended(Outcome.NOT_STARTED, message=message)
        return ended(Outcome.SURVIVED, message=flaky)

    def _run(self, case: str, wait: Sequence[float]) -> CaseResult:
        known = self._lines.cases.get(case)
        return self._trials.run(case, wait[0] + wait[1] * (known.seconds if known else UNKNOWN_S))

    def _trial(
        self, mutant: BehaviourMutant, outcome: Outcome, killer: str, message: str, ran: int, candidates: int,
        brokers: int, seconds: float,
    ) -> Trial:  # fmt: skip
        module, before, after = mutant.identity
        return Trial(
            key=mutant.key, suite=self._suite, name=mutant.name, module=module, line=mutant.mutant.line,
            before=before, after=after, effect=mutant.effect, outcome=outcome, killer=killer, message=message,
            cases=ran, candidates=candidates, brokers=brokers, seconds=round(seconds, 1),
        )  # fmt: skip


def _areas(mutant: BehaviourMutant) -> tuple[str, ...]:
    return AREAS.get(mutant.mutant.module.split(".")[2], ())


def _uses_replicas(mutant: BehaviourMutant, case: str) -> bool:
    return bool(REPLICATED & {mutant.mutant.module.split(".")[2], case.partition("-")[0]})


def control(trials: MutantTrials, killers: Collection[Killer]) -> str:
    """Return which of these cases fails on a correct broker, and how; empty if all pass."""
    for size in SIZES:
        cases = {killer.case for killer in killers if killer.brokers == size}
        if not cases:
            continue
        with trials.target(size, None):
            for case in sorted(cases, key=lambda case: is_slow(trials.items[case])):
                for _ in range(2):  # a busy machine
                    result = trials.run(case)
                    if result.verdict in ALLOWED:
                        break
                else:
                    return f"{case}: {result.message}"
    return ""
