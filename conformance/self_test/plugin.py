"""Puts each case to the test: it must pass on an honest broker, and fail for each defect that it says it sees.

    pytest -p conformance.plugin -p conformance.self_test.plugin --pyargs conformance.cases --hw-target reference:3

A defect on the wire is planted when the case begins and lifted when it ends: what is set up and removed for it is
none of its business. A spoiled run waits at most a little longer for anything than the whole honest one took.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, cast

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from conformance.broker import advertised_by
from conformance.connection import Patience
from conformance.defects import Defect, GuardOff, OfTheBroker, Setting
from conformance.failures import TargetFailure
from conformance.plugin import ADVERTISED, PATIENCE, REPORTER, RESULT, TARGET, Reporter, case_of
from conformance.self_test.dishonest import BEHAVIOURS
from conformance.self_test.listener import Listener
from conformance.self_test.targets import DishonestTarget, ProxiedTarget
from conformance.self_test.trials import HONEST, UNDEFENDED, Outcome, Trial, text_of
from conformance.targets import launch_target
from conformance.targets.base import Target
from conformance.targets.reference import ReferenceTarget
from conformance.verdicts import BROKEN, CaseResult, CaseVerdict
from spec.formats.verdict import UsageError

LEAST_PATIENCE_S: Final = 0.7
PATIENCE_FACTOR: Final = 1.5
DISHONEST_PATIENCE_S: Final = 0.1
ATTEMPTS: Final = 2
NOT_OURS: Final = frozenset({CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("highwater").addoption("--hw-share", default="0/1", help="of the cases, share I of N: I/N")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        raise session.Interrupted("some cases could not be read")
    mine = _share_of(session.items, session.config.getoption("hw_share"))
    if not mine:
        return True
    try:
        with _self_test(session.config) as self_test:
            self_test.judge_all([item for item in session.items if _case_name(item) in mine])
    except (UsageError, TargetFailure) as error:
        _report(session.config, "usage", str(error))
    return True


def _share_of(items: list[pytest.Item], share: str) -> set[str]:
    """Cases by name. Those that take their time are dealt first, so that nobody gets them all."""
    number, of = map(int, share.split("/"))
    quick = {_case_name(item): not _takes_its_time(item) for item in items}
    return set(sorted(quick, key=lambda case: (quick[case], case))[number::of])


def _takes_its_time(item: pytest.Item) -> bool:
    waits = any(item.get_closest_marker(name) for name in ("slow", "cluster_fault"))
    return waits or any(isinstance(defect, OfTheBroker) for defect in _defects_of(item))


@contextmanager
def _self_test(config: pytest.Config) -> Iterator["SelfTest"]:
    target = launch_target(config.getoption("hw_target"))
    proxied = ProxiedTarget(target)
    config.stash[TARGET] = cast("Target", proxied)
    try:
        config.stash[ADVERTISED] = advertised_by(proxied.bootstrap.split(",")[0])
        config.pluginmanager.register(self_test := SelfTest(config, proxied))
        yield self_test
    finally:
        proxied.close()
        del config.stash[TARGET]


class SelfTest:
    def __init__(self, config: pytest.Config, proxied: ProxiedTarget) -> None:
        self._config, self._proxied = config, proxied
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
            for defect in _defects_of(item):
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
        defects = _defects_of(item)
        if not defects:
            self._tell(item, UNDEFENDED, Outcome.MISSED)
        for defect in defects:
            if not isinstance(defect, OfTheBroker):
                self._plant(item, defect)
        if _sweep_of(item) not in self._swept:
            self._swept.add(_sweep_of(item))
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
        for _ in range(ATTEMPTS):
            result = self._run(item, defect)
            if result.verdict is not CaseVerdict.ERROR:
                break
        fault = self._proxied.fault
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

    def _run(self, item: pytest.Item, defect: Defect | None = None) -> CaseResult:
        """How the case itself ended; a failure before its first line is an error of ours."""
        self._planted, self._result = defect, None
        self._patience_s = LEAST_PATIENCE_S + PATIENCE_FACTOR * self._honestly_s[item] if defect else math.inf
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
        trial = Trial(
            case=_case_name(item), item=case_of(item)[0], defect=defect, outcome=outcome, message=message,
            seconds=self._took_s,
        )  # fmt: skip
        _report(self._config, "trial", trial)


def _outcome(result: CaseResult) -> Outcome:
    if result.verdict in BROKEN:
        return Outcome.CAUGHT
    return Outcome.MISSED if result.verdict is CaseVerdict.PASS else Outcome.ERROR


def _defects_of(item: pytest.Item) -> list[Defect]:
    return [defect for marker in item.iter_markers("defect") for defect in marker.args]


def _case_name(item: pytest.Item) -> str:
    """A sweep is one case."""
    marker = item.get_closest_marker("clause")
    assert marker is not None, "the suite's own plugin has seen to it"
    clause_id, variant = marker.args
    return f"{clause_id}[{variant}]" if variant else str(clause_id)


def _sweep_of(item: pytest.Item) -> tuple[object, ...]:
    """The same for all versions of a case: where nobody speaks the protocol, they are one."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params.items() if callspec else ()
    return _case_name(item), *(str(value) for name, value in parameters if name != "version")


def _report(config: pytest.Config, kind: str, value: object) -> None:
    reporter = config.pluginmanager.get_plugin(REPORTER)
    with suppress(BrokenPipeError):
        if isinstance(reporter, Reporter):
            reporter.write(kind, value)
