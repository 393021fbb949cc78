"""Settings of Hypothesis, shared plugins, and the samples of long lists of cases, for every test of the project."""

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "highwater.pytest_imports", "highwater.conformance.markers", "highwater.reference.tests.fixtures",
    "highwater.reports.tests.fixtures",
]  # fmt: skip

settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("same")
"""The same examples in every run; `make soak` draws others, with `--hypothesis-profile fresh`, and prints what replays
one that fails. No deadline in either: how long an example takes says how busy the machine is.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a fixture together; leave all but every n-th case marked `sample(n)` to `make soak`."""
    seen: dict[str, int] = {}
    for item in items:
        if _shares_a_fixture(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        sample = item.get_closest_marker("sample")
        if sample is None:
            continue
        test = item.nodeid.partition("[")[0]
        number = seen[test] = seen.get(test, -1) + 1
        if number % sample.args[0]:
            item.add_marker("soak")


def _shares_a_fixture(item: pytest.Item) -> bool:
    """Return whether a fixture lasts for the whole module: each worker with a test of it would make its own."""
    known = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009
    return any(fixture.scope == "module" for fixtures in known for fixture in fixtures)
