"""One case after another before honest, spoiled and dishonest brokers.

A defect on the wire is planted when the case begins and lifted when it ends: what is set up and removed for it is
none of its business. A spoiled run waits at most a little longer for anything than the whole honest one took.
"""

import math
import time
from collections.abc import Callable
from typing import Final, cast

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from highwater.conformance.connection import Patience
from highwater.conformance.defects import Defect, GuardOff, OfTheBroker, Setting
from highwater.conformance.plugin import PATIENCE, RESULT, TARGET
from highwater.conformance.selection import case_of
from highwater.conformance.self_test.proxy import Listener
from highwater.conformance.self_test.targets import BEHAVIOURS, DishonestTarget, ProxiedTarget
from highwater.conformance.self_test.trials import (
    HONEST,
    UNDEFENDED,
    Outcome,
    Trial,
    case_name,
    defects_of,
    sweep_of,
    text_of,
)
from highwater.conformance.targets.base import Target
from highwater.conformance.targets.reference import ReferenceTarget
from highwater.conformance.verdicts import BROKEN, CaseResult, CaseVerdict

LEAST_PATIENCE_S: Final = 0.7
PATIENCE_FACTORS: Final = (1.5, 6.0)
DISHONEST_PATIENCE_S: Final = 0.1
ATTEMPTS: Final = 2
NOT_OURS: Final = frozenset({CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE})


class SelfTest:
    """`on_trial` gets what came of each run."""

    def __init__(self, config: pytest.Config, proxied: ProxiedTarget, on_trial: Callable[[Trial], None]) -> None:
        self._config, self._proxied, self._on_trial = config, proxied, on_trial
        self._patience = config.stash[PATIENCE] = Patience()
        self._honestly_s: dict[pytest.Item, float] = {}
        self._swept: set[tuple[object, ...]] = set()
        self._planted: Defect | None = None
        self._patience_s = math.inf
        self._result: CaseResult | None = None
        self._took_s = 0.0

    def judge_all(self, items: list[pytest.Item]) -> None:
        """First what one cluster can show, then each defect that needs a cluster of its own."""
        tried = [item for item in items if self._judge(item)]
        own_cluster: dict[OfTheBroker, list[pytest.Item]] = {}
        for item in tried:
            for defect in defects_of(item):
                if isinstance(defect, OfTheBroker):
                    own_cluster.setdefault(defect, []).append(item)
        for defect, those in own_cluster.items():
            self._plant_in_a_cluster(defect, those)

    # -- the trials of one case ----------------------------------------------------------------------

    def _judge(self, item: pytest.Item) -> bool:
        """False: there is no more to try, since the case does not pass on an honest broker."""
        self._config.stash[TARGET] = cast("Target", self._proxied)
        honest = self._run_honestly(item)
        if honest.verdict is not CaseVerdict.PASS:
            outcome = Outcome.UNTESTED if honest.verdict in NOT_OURS else Outcome.ERROR
            self._tell(item, HONEST, outcome, honest.message)
            return False
        self._tell(item, HONEST, Outcome.CAUGHT)
        defects = defects_of(item)
        if not defects:
            self._tell(item, UNDEFENDED, Outcome.MISSED)
        for defect in defects:
            if not isinstance(defect, OfTheBroker):
                self._plant(item, defect)
        if sweep_of(item) not in self._swept:
            self._swept.add(sweep_of(item))
            for name in BEHAVIOURS:
                self._be_dishonest(item, name)
        return True

    def _run_honestly(self, item: pytest.Item) -> CaseResult:
        for _ in range(ATTEMPTS):
            result = self._run(item)
            self._honestly_s[item] = self._took_s
            if result.verdict is CaseVerdict.PASS or result.verdict in NOT_OURS:
                break
            self._proxied.revive()
        return result

    def _plant(self, item: pytest.Item, defect: Defect) -> None:
        """A case that fails before the defect could act was not waited for long enough, or stumbled: once more."""
        fault = self._proxied.fault
        for patience in PATIENCE_FACTORS:
            result = self._run(item, defect, patience)
            if result.verdict is not CaseVerdict.ERROR and fault.taken_effect:
                break
        if fault.taken_effect:
            self._tell(item, text_of(defect), _outcome(result), result.message)
        else:
            self._tell(item, text_of(defect), Outcome.NEVER_PLANTED, fault.complaint)

    def _be_dishonest(self, item: pytest.Item, name: str) -> None:
        server = Listener(BEHAVIOURS[name])
        honest, keep = self._config.stash[TARGET], self._config.option.hw_keep
        self._config.stash[TARGET] = cast("Target", DishonestTarget(honest, server.address))
        self._config.option.hw_keep = True
        self._patience.most_s = DISHONEST_PATIENCE_S
        try:
            result = self._run(item)
        finally:
            self._config.stash[TARGET], self._config.option.hw_keep = honest, keep
            server.close()
        self._tell(item, name, _outcome(result), result.message)

    def _plant_in_a_cluster(self, defect: OfTheBroker, items: list[pytest.Item]) -> None:
        if self._proxied.name != "reference":
            for item in items:
                self._tell(item, text_of(defect), Outcome.UNTESTED, "only the reference can be started so")
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
                self._tell(item, text_of(defect), _outcome(result), result.message)
        finally:
            target.close()

    # -- one run -------------------------------------------------------------------------------------

    def _run(
        self, item: pytest.Item, defect: Defect | None = None, patience: float = PATIENCE_FACTORS[0]
    ) -> CaseResult:
        """How the case itself ended; a failure before its first line is an error of ours."""
        self._planted, self._result = defect, None
        self._patience_s = LEAST_PATIENCE_S + patience * self._honestly_s[item] if defect else math.inf
        began = time.monotonic()
        reports = runtestprotocol(item, log=False, nextitem=None)
        self._took_s = time.monotonic() - began
        result = self._result or item.stash[RESULT]
        if defect and reports[0].failed:
            return msgspec.structs.replace(result, verdict=CaseVerdict.ERROR)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        if self._planted is not None:
            self._patience.most_s = self._patience_s
            if not isinstance(self._planted, OfTheBroker):
                self._proxied.fault.plant(self._planted)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._result = item.stash.get(RESULT, None)
        self._patience.most_s = math.inf
        self._proxied.fault.lift()

    def _tell(self, item: pytest.Item, defect: str, outcome: Outcome, message: str = "") -> None:
        self._on_trial(Trial(
            case=case_name(item), item=case_of(item)[0], defect=defect, outcome=outcome, message=message,
            seconds=self._took_s,
        ))  # fmt: skip


def _outcome(result: CaseResult) -> Outcome:
    if result.verdict in BROKEN:
        return Outcome.CAUGHT
    return Outcome.MISSED if result.verdict is CaseVerdict.PASS else Outcome.ERROR
