"""The pytest plugin of the suite: opens the target, gives each case a verdict and reports it as a line of JSON.

    pytest -p highwater.conformance.plugin --pyargs highwater.conformance.cases --hw-target reference:3

A case that fails is run a second time; a different outcome gives `flaky`. After a failure all brokers must answer. If
one is dead or hangs, the case that ran fails, and the target is restarted if the suite launched it.
"""

import gc
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from zlib import crc32

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from highwater.conformance.client.broker import (
    AdvertisedVersions,
    Broker,
    Topic,
    advertised_versions,
    read_finalized_features,
)
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import WaitLimit, access_to
from highwater.conformance.failures import TargetFailure
from highwater.conformance.running.judging import AcquireTarget, TargetGone, judge
from highwater.conformance.running.selection import case_of, check_era, needs_exclusive_target, select_cases
from highwater.conformance.running.sharing import SharedTarget, TargetServer
from highwater.conformance.running.verdicts import (
    BROKEN,
    NOT_TESTABLE,
    UNDECIDED,
    CaseResult,
    CaseVerdict,
    Expectation,
    all_expectations,
    expected_by,
    verdict_of,
)
from highwater.conformance.running.workers import Ended, Workers, WorkerTask
from highwater.conformance.targets import KNOWN, count_clusters, launch_target
from highwater.conformance.targets.base import PROMPT, REPEATABLE, RepeatableTarget, Target
from highwater.conformance.targets.external import BrokerDied
from highwater.conformance.targets.releases import Release
from highwater.conformance.values import replies_of
from highwater.errors import UsageError
from highwater.spec.clauses import find_clause

pytest_plugins = [
    "highwater.pytest_imports", "highwater.conformance.markers", "highwater.conformance.cases.fixtures",
]  # fmt: skip

PROPERTY: Final = "highwater"
REPORTER: Final = "highwater-reporter"
EXCHANGES_SHOWN: Final = 8
CASES_FOR_A_CLUSTER: Final = 8
"""Cases that need a cluster alone, for each further cluster: to start one takes as long as some of them."""
AUDIT: Final = "highwater.reports.recorder.exchanged"
"""Of the layer above, and therefore imported when it is used."""
POLLING_LIMIT_S: Final = 4.0
POLLING_LIMIT_AFTER_FAILURE_S: Final = 1.0

TARGET: Final = pytest.StashKey[Target]()
ACQUIRE_TARGET: Final = pytest.StashKey[AcquireTarget]()
ADVERTISED_VERSIONS: Final = pytest.StashKey[AdvertisedVersions]()
RESULT: Final = pytest.StashKey[CaseResult]()
CLUSTER: Final = pytest.StashKey[Cluster]()
FINGERPRINT: Final = pytest.StashKey[str]()
EXPECTED: Final = pytest.StashKey[Sequence[Expectation]]()
WAIT_LIMIT: Final = pytest.StashKey[WaitLimit]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("highwater", "conformance of a Kafka broker")
    group.addoption("--hw-target", help=KNOWN)
    group.addoption("--hw-command-config", help="client properties for TLS and SASL, as for Apache Kafka's tools")
    group.addoption("--hw-guard-off", action="append", default=[], help="switch off this guard of the reference")
    group.addoption("--hw-area", action="append", default=[], help="only this area, e.g. FRM; repeatable")
    group.addoption("--hw-clause", action="append", default=[], help="only this clause or case; repeatable")
    group.addoption("--hw-exclude", action="append", default=[], help="not this clause or case; repeatable")
    group.addoption("--hw-since", default="", help="only clauses that first applied to this Kafka version or later")
    group.addoption("--hw-until", default="", help="only clauses that first applied to this Kafka version or earlier")
    group.addoption("--hw-expect", help="a file of known deviations, which are not run again alone")
    group.addoption("--hw-level", choices=("must", "should", "may"), default="may", help="this level and above")
    group.addoption("--hw-kafka-version", default="", help="Kafka version whose rules the target follows, e.g. 2.8")
    group.addoption("--hw-timeout", type=float, default=5.0, help="seconds to wait for a reply")
    group.addoption("--hw-no-slow", action="store_true", help="leave out cases that wait for time-outs")
    group.addoption("--hw-long", action="store_true", help="also cases that send tens of thousands of requests")
    group.addoption("--hw-jobs", type=int, default=1, help="cases to run in parallel")
    group.addoption("--hw-clusters", type=int, default=0, help="clusters to launch; 0: as many as fit the target")
    group.addoption("--hw-repeat", type=int, default=1, help="runs of each case; differing verdicts give flaky")
    group.addoption("--hw-keep", action="store_true", help="do not delete the topics and groups of the cases")
    group.addoption("--hw-audit", action="store_true", help="audit what the client of each case saw")
    group.addoption("--hw-values", action="store_true", help="report the values of all replies")
    group.addoption("--hw-dry-run", action="store_true", help="report the cases without running them")
    group.addoption(
        "--hw-report-fd", type=int, default=-1, help="write a line of JSON for each verdict to this descriptor"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hw_target") and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("these cases share a target: give --hw-jobs instead of -n")
    descriptor = config.getoption("hw_report_fd")
    if descriptor >= 0:
        config.pluginmanager.register(Reporter(descriptor), REPORTER)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("hw_target") and not config.getoption("hw_dry_run"):
        return
    chosen, left_out = select_cases(config, items)
    _write(config, "left_out", left_out)
    _write(config, "selected", [_listed(item, CaseVerdict.NOT_RUN) for item in chosen])
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


# -- the target -------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Report every case of a dry run; else open the target and run the cases, side by side if `--hw-jobs` says so."""
    config = session.config
    if config.getoption("hw_dry_run"):
        for item in session.items:
            _write(config, "result", _listed(item, CaseVerdict.PASS))
        return True
    if not config.getoption("hw_target"):
        return None
    expect = config.getoption("hw_expect")
    try:
        config.stash[EXPECTED] = all_expectations(config.getoption("hw_target"), Path(expect) if expect else None)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
    jobs = min(config.getoption("hw_jobs"), len(session.items))
    if jobs > 1 and not session.testsfailed:
        _run_side_by_side(session, jobs)
        return True
    _open_target(config)
    return None


def _listed(item: pytest.Item, verdict: CaseVerdict, message: str = "") -> CaseResult:
    """Return a result for a case that did not run to an end."""
    case, clause = case_of(item)
    return CaseResult(case=case, clause=clause.id, level=clause.level, verdict=verdict, message=message)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report why the remaining cases were not run."""
    if session.shouldstop:
        _write(session.config, "stopped", str(session.shouldstop))


def _open_target(config: pytest.Config) -> None:
    """Open the target, or stop with what is wrong with it."""
    try:
        target = config.stash[TARGET] = _launch(config)
        config.stash[ACQUIRE_TARGET] = _acquire_alone
        access, address = access_to(target), target.bootstrap.split(",")[0]
        config.stash[ADVERTISED_VERSIONS] = advertised_versions(address, access=access)
    except (UsageError, TargetFailure) as error:
        _write(config, "stopped" if isinstance(error, BrokerDied) else "usage", str(error))
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    asked = config.getoption("hw_kafka_version")
    is_guessed = asked and target.version.startswith("as Kafka")
    _write(config, "target", Release(asked).text() if is_guessed else target.version)
    _write(config, "features", read_finalized_features(address, access))


def _acquire_alone(*, exclusive: bool) -> AbstractContextManager[None]:
    return nullcontext()


def _launch(config: pytest.Config) -> Target:
    command_config = config.getoption("hw_command_config")
    path = Path(command_config) if command_config else None
    return launch_target(config.getoption("hw_target"), path, config.getoption("hw_guard_off"))


def pytest_unconfigure(config: pytest.Config) -> None:
    _close_target(config)


def _close_target(config: pytest.Config) -> None:
    if TARGET in config.stash:
        config.stash[TARGET].close()


# -- cases side by side -----------------------------------------------------------------------------


class Served(NamedTuple):
    """What a worker needs of the target. It asks the broker nothing: another worker's case may have ended it.

    Without an address, the worker launches a cluster of its own.
    """

    address: str
    advertised: AdvertisedVersions


class Ran(NamedTuple):
    """What a worker says of a case: its reports, and why the run must stop or an empty string."""

    reports: list[dict[str, Any] | None]
    stop: str


def _run_side_by_side(session: pytest.Session, jobs: int) -> None:
    """Fork the workers, open the target and serve it to them; report their cases as if they had run here."""
    config = session.config
    alone = [number for number, item in enumerate(session.items) if needs_exclusive_target(item)]
    clusters = count_clusters(config.getoption("hw_target"), config.getoption("hw_clusters"))
    own = min(clusters - 1, len(alone) // CASES_FOR_A_CLUSTER)
    gc.freeze()  # a collection would write to all memory that the workers share
    workers = Workers(jobs + own, partial(_begin, session), partial(_run_case, session), partial(_close_target, config))
    server: TargetServer | None = None
    try:
        _open_target(config)
        if REPEATABLE in config.stash[TARGET].capabilities:
            everything = iter(range(len(session.items)))
            tasks = [WorkerTask(Served("", config.stash[ADVERTISED_VERSIONS]), everything)] * (jobs + own)
        else:
            server = TargetServer(config.stash[TARGET])
            served = Served(server.address, config.stash[ADVERTISED_VERSIONS])
            tasks = _tasks(served, jobs, own, alone, len(session.items))
        for number, ran in workers.run(tasks):
            _report_case(session.items[number], ran)
            if session.shouldstop or session.shouldfail:
                running = ", ".join(case_of(session.items[other])[0] for other in workers.running())
                if session.shouldstop and running:
                    session.shouldstop = f"{session.shouldstop}; {running} ran meanwhile: decide with --jobs 1"
                break
    except Ended as ended:
        session.shouldstop = str(ended)
    finally:
        workers.close()
        if server is not None:
            server.close()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _tasks(served: Served, jobs: int, own: int, alone: Sequence[int], count: int) -> list[WorkerTask]:
    """Return the tasks of `jobs` workers that share the target and of `own` ones with a cluster of their own.

    The latter run the cases that need a cluster alone; so does one of the others after all other cases. One of those
    that share begins at the end, with the slow cases: they wait most of the time.
    """
    needing = set(alone)
    waiting = deque(number for number in range(count) if number not in needing)
    exclusive, fast, slow = iter(alone), taken(waiting.popleft), taken(waiting.pop)
    sharing = [
        WorkerTask(served, chain(fast, exclusive)),
        *(WorkerTask(served, fast) for _ in range(jobs - 2)),
        WorkerTask(served, slow),
    ]
    return sharing + [WorkerTask(served._replace(address=""), exclusive) for _ in range(own)]


def taken(take: Callable[[], int]) -> Iterator[int]:
    """Yield what is taken from one end of a queue, until the queue is empty."""
    with suppress(IndexError):
        while True:
            yield take()


def _begin(session: pytest.Session, served: Served) -> None:
    config = session.config
    for name in ("terminalreporter", REPORTER):  # the process that forked this one reports
        if plugin := config.pluginmanager.get_plugin(name):
            config.pluginmanager.unregister(plugin)
    if served.address:
        shared = SharedTarget(served.address)
        config.stash[TARGET], config.stash[ACQUIRE_TARGET] = shared, shared.acquire
    else:
        config.stash[TARGET], config.stash[ACQUIRE_TARGET] = _launch(config), _acquire_alone
    config.stash[ADVERTISED_VERSIONS] = served.advertised


def _run_case(session: pytest.Session, number: int) -> Ran:
    item, kept = session.items[number], _Kept()
    plugins = item.config.pluginmanager
    plugins.register(kept)
    try:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
    finally:
        plugins.unregister(kept)
    to_data = item.config.hook.pytest_report_to_serializable
    return Ran([to_data(config=item.config, report=report) for report in kept.reports], str(session.shouldstop or ""))


class _Kept:
    """Keep the reports of a case."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)


def _report_case(item: pytest.Item, ran: Ran | None) -> None:
    config = item.config
    if ran is None:
        _write(config, "result", _listed(item, CaseVerdict.ERROR, "the process that ran this case ended"))
        item.session.testsfailed += 1
        return
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for data in ran.reports:
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    if ran.stop:
        item.session.shouldstop = ran.stop


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    config = request.config
    if TARGET not in config.stash:
        pytest.skip("no target: give --hw-target" if not config.getoption("hw_target") else "the target is closed")
    target = config.stash[TARGET]
    check_era(config.getoption("hw_kafka_version") or target.era, request.node.iter_markers())
    audits = config.getoption("hw_audit")
    repeatable = cast("RepeatableTarget", target) if REPEATABLE in target.capabilities else None
    if repeatable:
        marker = request.node.get_closest_marker("settings")
        repeatable.begin_case(case_of(request.node)[0], marker.kwargs if marker else {})
    cluster = Cluster(
        target, config.stash[ADVERTISED_VERSIONS], timeout_s=config.getoption("hw_timeout"),
        keep=config.getoption("hw_keep"), whole_log=audits or config.getoption("hw_values"),
        wait_limit=config.stash.get(WAIT_LIMIT, None) or _wait_limit(target, request.node),
        prefix=f"{crc32(request.node.nodeid.encode()):08x}" if repeatable else "",
    )  # fmt: skip
    request.node.stash[CLUSTER] = cluster
    yield cluster
    broken = ""
    if repeatable:
        request.node.stash[FINGERPRINT], broken = repeatable.end_case()
    else:
        cluster.close()
    result = request.node.stash.get(RESULT, None)
    if audits and not broken and result is not None and result.verdict is CaseVerdict.PASS:
        operations, broken = import_module(AUDIT).audit_case(cluster.log)
        request.node.stash[RESULT] = msgspec.structs.replace(result, audited=operations)
    if broken:
        raise TargetFailure(broken)


def _wait_limit(target: Target, item: pytest.Item) -> WaitLimit:
    """Return shorter polling limits for an in-memory target, and again shorter ones after the case has failed."""
    if PROMPT not in target.capabilities:
        return WaitLimit()
    has_failed = RESULT in item.stash and item.stash[RESULT].verdict in BROKEN
    join_s = POLLING_LIMIT_S + target.settings.get("group_initial_rebalance_delay_ms", 0) / 1000
    return WaitLimit(join_s, POLLING_LIMIT_AFTER_FAILURE_S if has_failed else POLLING_LIMIT_S)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    """Return a connection to any broker that is up."""
    return cluster.connect()


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    """Return the last partition of a new topic of three; a target without CreateTopics chooses their number."""
    return cluster.create_topic(partitions=3)


@pytest.fixture
def leader(cluster: Cluster, topic: Topic) -> Broker:
    """Return a connection to the topic's leader."""
    return cluster.leader(topic)


# -- verdicts ---------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if not item.config.getoption("hw_target"):
        return (yield)
    exception = call.excinfo.value if call.excinfo else None
    if call.when == "setup":
        _clear_result(item)
    if call.when != "call" and exception is None:
        return (yield)
    result = _judge(item, call, exception)
    if RESULT not in item.stash or result.verdict is not CaseVerdict.PASS:
        item.stash[RESULT] = result
    if exception is not None and result.verdict in NOT_TESTABLE:
        # As a skip, before pytest formats a traceback, which takes a tenth of a second or two.
        reason = pytest.skip.Exception(f"{result.verdict}: {result.message}", _use_item_location=True)
        call.excinfo = pytest.ExceptionInfo.from_exception(reason.with_traceback(exception.__traceback__))
    report = yield
    if result.verdict in BROKEN and CLUSTER in item.stash:
        clause = find_clause(result.clause)
        report.sections.append((f"{clause.id} {clause.level}", f"{clause.sentence} {clause.source}"))
        report.sections.append(("exchange", item.stash[CLUSTER].log.text(EXCHANGES_SHOWN)))
    return report


def _judge(item: pytest.Item, call: pytest.CallInfo[None], exception: BaseException | None) -> CaseResult:
    case, clause = case_of(item)
    verdict = verdict_of(exception, clause.level)
    is_shown = verdict in BROKEN | UNDECIDED and CLUSTER in item.stash
    has_values = item.config.getoption("hw_values") and verdict is CaseVerdict.PASS and CLUSTER in item.stash
    return CaseResult(
        case=case, clause=clause.id, level=clause.level, verdict=verdict, seconds=round(call.duration, 3),
        message=_message(exception) if exception else _notes(item),
        expected=getattr(exception, "expected", ""), actual=getattr(exception, "actual", ""),
        exchange=item.stash[CLUSTER].log.to_report() if is_shown else [],
        replies=replies_of(item.stash[CLUSTER].log, item.stash[CLUSTER].prefix) if has_values else [],
    )  # fmt: skip


def _notes(item: pytest.Item) -> str:
    return "; ".join(item.stash[CLUSTER].notes) if CLUSTER in item.stash else ""


def _clear_result(item: pytest.Item) -> None:
    """Delete the verdict of an earlier run of the same case."""
    if RESULT in item.stash:
        del item.stash[RESULT]


def _message(exception: BaseException) -> str:
    if isinstance(exception, TargetFailure | AssertionError):
        return (str(exception).strip() or "a bare assertion").splitlines()[0]
    if isinstance(exception, Exception) and type(exception).__module__ == "highwater.conformance.failures":
        return str(exception)
    return f"{type(exception).__name__}: {exception}".splitlines()[0]


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    config = item.config
    if TARGET not in config.stash:
        return None

    reports: list[pytest.TestReport] = []

    def run() -> tuple[CaseResult, list[pytest.TestReport]]:
        reports[:] = runtestprotocol(item, log=False, nextitem=nextitem)
        return item.stash[RESULT], list(reports)

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    try:
        result, reports = judge(
            config.stash[TARGET],
            config.stash[ACQUIRE_TARGET],
            run,
            exclusive=needs_exclusive_target(item),
            repeat=config.getoption("hw_repeat"),
            is_known=lambda result: expected_by(result, config.stash[EXPECTED]) is not None,
        )
    except TargetGone as gone:
        result, item.session.shouldstop = gone.result, str(gone)
    result = msgspec.structs.replace(result, fingerprint=item.stash.get(FINGERPRINT, ""))
    for report in reports:
        if report.when == "teardown":
            report.user_properties.append((PROPERTY, msgspec.to_builtins(result)))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


class Reporter:
    """Write events to a pipe, one JSON object a line.

    They are `left_out`, `selected`, `target`, `features`, `result`, `stopped`, `usage` and `unreadable`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, kind: str, value: object) -> None:
        line = memoryview(msgspec.json.encode({kind: value}) + b"\n")
        while line:  # os.write may write only part of the line when the pipe is full
            line = line[os.write(self._descriptor, line) :]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY:
                self.write("result", value)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a module that cannot be imported: without its cases the run would look complete."""
        if report.failed:
            self.write("unreadable", f"{report.nodeid} has no cases: {str(report.longrepr).splitlines()[-1]}")


def _write(config: pytest.Config, kind: str, value: object) -> None:
    reporter = config.pluginmanager.get_plugin(REPORTER)
    if isinstance(reporter, Reporter):
        reporter.write(kind, value)
