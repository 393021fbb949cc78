"""Test each case: it must pass on a correct broker, and fail for each defect that it declares with `@defect`.

    pytest -p highwater.conformance.plugin -p highwater.conformance.self_test.plugin \\
        --pyargs highwater.conformance.cases --hw-target simulator:3
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.connection import access_to
from highwater.conformance.failures import TargetFailure
from highwater.conformance.plugin import ADVERTISED_VERSIONS, REPORTER, TARGET, Reporter
from highwater.conformance.self_test.attempts import SelfTest
from highwater.conformance.self_test.targets import DefectiveTarget
from highwater.conformance.self_test.trials import share_of
from highwater.conformance.targets import launch_target
from highwater.conformance.targets.base import Target
from highwater.errors import UsageError


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("highwater").addoption("--hw-share", default="0/1", help="run share I of N of the cases: I/N")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        raise session.Interrupted("some cases could not be collected")
    items = share_of(session.items, session.config.getoption("hw_share"))
    if not items:
        return True
    try:
        with _self_test(session.config) as self_test:
            self_test.judge_all(items)
    except (UsageError, TargetFailure) as error:
        _report(session.config, "usage", str(error))
    return True


@contextmanager
def _self_test(config: pytest.Config) -> Iterator[SelfTest]:
    command_config = config.getoption("hw_command_config")
    target = DefectiveTarget(
        launch_target(config.getoption("hw_target"), Path(command_config) if command_config else None)
    )
    config.stash[TARGET] = cast("Target", target)
    try:
        address, access = target.bootstrap.split(",")[0], access_to(cast("Target", target))
        config.stash[ADVERTISED_VERSIONS] = advertised_versions(address, access=access)
        self_test = SelfTest(config, target, lambda trial: _report(config, "trial", trial))
        config.pluginmanager.register(self_test)
        yield self_test
    finally:
        target.close()
        del config.stash[TARGET]


def _report(config: pytest.Config, kind: str, value: object) -> None:
    reporter = config.pluginmanager.get_plugin(REPORTER)
    with suppress(BrokenPipeError):
        if isinstance(reporter, Reporter):
            reporter.write(kind, value)
