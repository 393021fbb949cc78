"""A pytest plugin with the fixture `kafka_proxy`: `pytest_plugins = ["highwater.fuzz.proxy.fixture"]`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from highwater.fuzz.proxy.run import FaultProxy


@pytest.fixture
def kafka_proxy() -> Iterator[Callable[..., FaultProxy]]:
    """Return a function that opens a proxy: its arguments are the address of a cluster, and lines of faults.

    All proxies are closed after the test. Raises UsageError for a line with a mistake.
    """
    with ExitStack() as stack:
        yield lambda upstream, *lines: stack.enter_context(FaultProxy(upstream, lines))
