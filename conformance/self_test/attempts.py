"""Runs of each case of the self-test: on a correct broker, with each declared defect, and on fake servers.

A wire defect is planted when the body of the case begins and removed when it ends, so that fixtures are not affected.
In a run with a defect every wait is limited to little more than the duration of the run on the correct broker, both on
the target's clock. In virtual time that saves events; a run with a longer limit costs little, and none is repeated.
"""

import math
from collections.abc import Callable
from typing import Final, cast

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from highwater.conformance.client.connection import WaitLimit
from highwater.conformance.defects import BrokerDefect, Defect, GuardOff
from highwater.conformance.plugin import CLUSTER, RESULT, TARGET, WAIT_LIMIT
from highwater.conformance.running.selection import case_of
from highwater.conformance.running.verdicts import BROKEN, NOT_TESTABLE, CaseResult, CaseVerdict
from highwater.conformance.self_test.fake_servers import FAKE_SERVERS
from highwater.conformance.self_test.targets import DefectiveTarget, FakeServerTarget
from highwater.conformance.self_test.trials import (
    NO_DECLARED_DEFECT,
    NO_DEFECT,
    Outcome,
    Trial,
    case_name,
    defects_of,
    describe_defect,
    sweep_of,
)
from highwater.conformance.targets import is_altered_at_launch, launch_target
from highwater.conformance.targets.base import REPEATABLE, Target

MIN_WAIT_S: Final = 0.7
WAIT_FACTORS: Final = (1.5, 6.0)
FAKE_SERVER_WAIT_S: Final = 0.1
ATTEMPTS: Final = 2


class SelfTest:
    """Runs the trials of all cases; `on_trial` gets the result of each."""

    def __init__(self, config: pytest.Config, target: DefectiveTarget, on_trial: Callable[[Trial], None]) -> None:
        self._config, self._target, self._on_trial = config, target, on_trial
        self._attempts = 1 if target.is_repeatable else ATTEMPTS
        self._wait_factors = WAIT_FACTORS[-1:] if target.is_repeatable else WAIT_FACTORS
        self._wait_limit = config.stash[WAIT_LIMIT] = WaitLimit()
        self._baseline_s: dict[pytest.Item, float] = {}
        self._swept: set[tuple[object, ...]] = set()
        self._planted: Defect | None = None
        self._wait_limit_s = math.inf
        self._result: CaseResult | None = None
        self._began_s = self._took_s = 0.0

    def judge_all(self, items: list[pytest.Item]) -> None:
        """Test all cases on one cluster, then start a separate cluster for each defect that needs one."""
        passing = [item for item in items if self._judge(item)]
        own_cluster: dict[BrokerDefect, list[pytest.Item]] = {}
        for item in passing:
            for defect in defects_of(item):
                if isinstance(defect, BrokerDefect):
                    own_cluster.setdefault(defect, []).append(item)
        for defect, defect_items in own_cluster.items():
            self._plant_in_own_cluster(defect, defect_items)

    # -- the trials of one case ----------------------------------------------------------------------

    def _judge(self, item: pytest.Item) -> bool:
        """Run the trials of one case; return False if it does not pass on a correct broker."""
        self._config.stash[TARGET] = cast("Target", self._target)
        correct = self._run_without_defect(item)
        if correct.verdict is not CaseVerdict.PASS:
            outcome = Outcome.UNTESTED if correct.verdict in NOT_TESTABLE else Outcome.ERROR
            self._report_trial(item, NO_DEFECT, outcome, correct.message)
            return False
        self._report_trial(item, NO_DEFECT, Outcome.CAUGHT)
        defects = defects_of(item)
        if not defects:
            self._report_trial(item, NO_DECLARED_DEFECT, Outcome.MISSED)
        for defect in defects:
            if not isinstance(defect, BrokerDefect):
                self._plant(item, defect)
        if sweep_of(item) not in self._swept:
            self._swept.add(sweep_of(item))
            for name in FAKE_SERVERS:
                self._run_on_fake_server(item, name)
        return True

    def _run_without_defect(self, item: pytest.Item) -> CaseResult:
        for _ in range(self._attempts):
            result = self._run(item)
            self._baseline_s[item] = self._took_s
            if result.verdict is CaseVerdict.PASS or result.verdict in NOT_TESTABLE:
                break
            self._target.revive()
        return result

    def _plant(self, item: pytest.Item, defect: Defect) -> None:
        """Run a case with a defect, again with a longer wait limit if the defect did not take effect."""
        fault = self._target.fault
        for wait_factor in self._wait_factors:
            result = self._run(item, defect, wait_factor)
            if result.verdict is not CaseVerdict.ERROR and fault.taken_effect:
                break
        if fault.taken_effect:
            self._report_trial(item, describe_defect(defect), _outcome(result), result.message)
        else:
            self._report_trial(item, describe_defect(defect), Outcome.NEVER_PLANTED, fault.mutation_error)

    def _run_on_fake_server(self, item: pytest.Item, name: str) -> None:
        correct = self._config.stash[TARGET]
        self._config.stash[TARGET] = cast("Target", FakeServerTarget(correct, FAKE_SERVERS[name]))
        self._wait_limit.max_s = FAKE_SERVER_WAIT_S
        try:
            result = self._run(item)
        finally:
            self._config.stash[TARGET] = correct
        self._report_trial(item, name, _outcome(result), result.message)

    def _plant_in_own_cluster(self, defect: BrokerDefect, items: list[pytest.Item]) -> None:
        name = self._config.getoption("hw_target")
        if not is_altered_at_launch(name):
            for item in items:
                self._report_trial(
                    item,
                    describe_defect(defect),
                    Outcome.UNTESTED,
                    "only the reference can be started with this defect",
                )
            return
        if isinstance(defect, GuardOff):
            target = DefectiveTarget(launch_target(name, guards_off=[defect.guard]))
        else:
            target = DefectiveTarget(launch_target(name, hidden={defect.name: defect.value}))
        self._config.stash[TARGET] = cast("Target", target)
        try:
            for item in items:
                result = self._run(item, defect, self._wait_factors[0])
                self._report_trial(item, describe_defect(defect), _outcome(result), result.message)
        finally:
            target.close()

    # -- one run -------------------------------------------------------------------------------------

    def _run(self, item: pytest.Item, defect: Defect | None = None, wait_factor: float = 0.0) -> CaseResult:
        """Run the case and return the result of its body; a failure during set-up is an error of the suite."""
        self._planted, self._result = defect, None
        self._wait_limit_s = MIN_WAIT_S + wait_factor * self._baseline_s[item] if defect else math.inf
        self._began_s = self._now_s(at_begin=True)
        reports = runtestprotocol(item, log=False, nextitem=None)
        result = self._result or item.stash[RESULT]
        if CLUSTER in item.stash:
            del item.stash[CLUSTER]  # its connections would keep the simulated world of the case
        if defect and reports[0].failed:
            return msgspec.structs.replace(result, verdict=CaseVerdict.ERROR)
        return result

    def _now_s(self, *, at_begin: bool = False) -> float:
        """Return the time of the target's clock; that of a repeatable target begins at 0 in each case."""
        target = self._config.stash[TARGET]
        return 0.0 if at_begin and REPEATABLE in target.capabilities else target.transport.clock.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        if self._planted is not None:
            self._wait_limit.max_s = self._wait_limit_s
            if not isinstance(self._planted, BrokerDefect):
                self._target.fault.plant(self._planted)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._result = item.stash.get(RESULT, None)
        self._took_s = self._now_s() - self._began_s
        self._wait_limit.max_s = math.inf
        self._target.fault.lift()

    def _report_trial(self, item: pytest.Item, defect: str, outcome: Outcome, message: str = "") -> None:
        self._on_trial(Trial(
            case=case_name(item), item=case_of(item)[0], defect=defect, outcome=outcome, message=message,
            seconds=round(self._took_s, 3),
        ))  # fmt: skip


def _outcome(result: CaseResult) -> Outcome:
    if result.verdict in BROKEN:
        return Outcome.CAUGHT
    return Outcome.MISSED if result.verdict is CaseVerdict.PASS else Outcome.ERROR
