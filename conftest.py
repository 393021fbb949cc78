"""Settings of Hypothesis and shared plugins, for every test of the project."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["highwater.pytest_imports", "highwater.reference.tests.fixtures", "highwater.reports.tests.fixtures"]

settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("same")
"""The same examples in every run; `make soak` draws others, with `--hypothesis-profile fresh`, and prints what replays
one that fails. No deadline in either: how long an example takes says how busy the machine is.
"""
