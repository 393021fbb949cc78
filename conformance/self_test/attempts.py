"""Runs of each case of the self-test: on a correct broker, with each declared defect, and on fake servers.

A wire defect is planted when the body of the case begins and removed when it ends, so that fixtures are not affected.
In a run with a defect every wait is limited to little more than the duration of the run on the correct broker.
"""

import math
import time
from collections.abc import Callable
from typing import Final, cast

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from highwater.conformance.connection import WaitLimit
from highwater.conformance.defects import BrokerDefect, Defect, GuardOff, Setting
from highwater.conformance.plugin import RESULT, TARGET, WAIT_LIMIT
from highwater.conformance.selection import case_of
from highwater.conformance.self_test.proxy import Listener
from highwater.conformance.self_test.targets import FAKE_SERVERS, FakeServerTarget, ProxiedTarget
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
from highwater.conformance.targets.base import Target
from highwater.conformance.targets.reference import ReferenceTarget
from highwater.conformance.verdicts import BROKEN, NOT_TESTABLE, CaseResult, CaseVerdict

MIN_WAIT_S: Final = 0.7
WAIT_FACTORS: Final = (1.5, 6.0)
FAKE_SERVER_WAIT_S: Final = 0.1
ATTEMPTS: Final = 2


class SelfTest:
    """Runs the trials of all cases; `on_trial` gets the result of each."""

    def __init__(self, config: pytest.Config, proxied: ProxiedTarget, on_trial: Callable[[Trial], None]) -> None:
        self._config, self._proxied, self._on_trial = config, proxied, on_trial
        self._wait_limit = config.stash[WAIT_LIMIT] = WaitLimit()
        self._baseline_s: dict[pytest.Item, float] = {}
        self._swept: set[tuple[object, ...]] = set()
        self._planted: Defect | None = None
        self._wait_limit_s = math.inf
        self._result: CaseResult | None = None
        self._took_s = 0.0

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
        self._config.stash[TARGET] = cast("Target", self._proxied)
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
        for _ in range(ATTEMPTS):
            result = self._run(item)
            self._baseline_s[item] = self._took_s
            if result.verdict is CaseVerdict.PASS or result.verdict in NOT_TESTABLE:
                break
            self._proxied.revive()
        return result

    def _plant(self, item: pytest.Item, defect: Defect) -> None:
        """Run a case with a defect, again with a longer wait limit if the defect did not take effect."""
        fault = self._proxied.fault
        for wait_limit in WAIT_FACTORS:
            result = self._run(item, defect, wait_limit)
            if result.verdict is not CaseVerdict.ERROR and fault.taken_effect:
                break
        if fault.taken_effect:
            self._report_trial(item, describe_defect(defect), _outcome(result), result.message)
        else:
            self._report_trial(item, describe_defect(defect), Outcome.NEVER_PLANTED, fault.mutation_error)

    def _run_on_fake_server(self, item: pytest.Item, name: str) -> None:
        server = Listener(FAKE_SERVERS[name])
        correct, keep = self._config.stash[TARGET], self._config.option.hw_keep
        self._config.stash[TARGET] = cast("Target", FakeServerTarget(correct, server.address))
        self._config.option.hw_keep = True
        self._wait_limit.max_s = FAKE_SERVER_WAIT_S
        try:
            result = self._run(item)
        finally:
            self._config.stash[TARGET], self._config.option.hw_keep = correct, keep
            server.close()
        self._report_trial(item, name, _outcome(result), result.message)

    def _plant_in_own_cluster(self, defect: BrokerDefect, items: list[pytest.Item]) -> None:
        if self._proxied.name != "reference":
            for item in items:
                self._report_trial(
                    item,
                    describe_defect(defect),
                    Outcome.UNTESTED,
                    "only the reference can be started with this defect",
                )
            return
        brokers = len(self._proxied.addresses)
        match defect:
            case GuardOff(guard):
                target = ReferenceTarget(brokers, guards_off=[guard])
            case Setting(name, value):
                target = ReferenceTarget(brokers, hidden={name: value})
        self._config.stash[TARGET] = target
        try:
            for item in items:
                result = self._run(item, defect)
                self._report_trial(item, describe_defect(defect), _outcome(result), result.message)
        finally:
            target.close()

    # -- one run -------------------------------------------------------------------------------------

    def _run(self, item: pytest.Item, defect: Defect | None = None, wait_limit: float = WAIT_FACTORS[0]) -> CaseResult:
        """Run the case and return the result of its body; a failure during set-up is an error of the suite."""
        self._planted, self._result = defect, None
        self._wait_limit_s = MIN_WAIT_S + wait_limit * self._baseline_s[item] if defect else math.inf
        start = time.monotonic()
        reports = runtestprotocol(item, log=False, nextitem=None)
        self._took_s = time.monotonic() - start
        result = self._result or item.stash[RESULT]
        if defect and reports[0].failed:
            return msgspec.structs.replace(result, verdict=CaseVerdict.ERROR)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        if self._planted is not None:
            self._wait_limit.max_s = self._wait_limit_s
            if not isinstance(self._planted, BrokerDefect):
                self._proxied.fault.plant(self._planted)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._result = item.stash.get(RESULT, None)
        self._wait_limit.max_s = math.inf
        self._proxied.fault.lift()

    def _report_trial(self, item: pytest.Item, defect: str, outcome: Outcome, message: str = "") -> None:
        self._on_trial(Trial(
            case=case_name(item), item=case_of(item)[0], defect=defect, outcome=outcome, message=message,
            seconds=self._took_s,
        ))  # fmt: skip


def _outcome(result: CaseResult) -> Outcome:
    if result.verdict in BROKEN:
        return Outcome.CAUGHT
    return Outcome.MISSED if result.verdict is CaseVerdict.PASS else Outcome.ERROR
