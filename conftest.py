"""Settings of Hypothesis, shared plugins, and the samples of long lists of cases, for every test of the project."""

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["highwater.pytest_imports", "highwater.reference.tests.fixtures", "highwater.reports.tests.fixtures"]

settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("same")
"""The same examples in every run; `make soak` draws others, with `--hypothesis-profile fresh`, and prints what replays
one that fails. No deadline in either: how long an example takes says how busy the machine is.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but every n-th case of a test marked `sample(n)` to `make soak`."""
    seen: dict[str, int] = {}
    for item in items:
        sample = item.get_closest_marker("sample")
        if sample is None:
            continue
        test = item.nodeid.partition("[")[0]
        number = seen[test] = seen.get(test, -1) + 1
        if number % sample.args[0]:
            item.add_marker("soak")
