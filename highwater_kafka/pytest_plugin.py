"""What pytest finds by itself where Highwater is installed: the plugin, in a run that is about the suite.

A plugin that every pytest run on the machine would load must not cost or change anything: this one only looks at the
arguments. It imports `highwater` only then, so that another package of that name does not end every run of pytest.
"""

from collections.abc import Sequence
from typing import Final

import pytest

OURS: Final = ("--hw-", "highwater.conformance.cases")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: Sequence[str]) -> None:
    """Load the plugin in the last hook that can add options; raises UsageError if another distribution hides it."""
    if not any(argument.startswith(OURS) for argument in args):
        return
    try:
        early_config.pluginmanager.import_plugin("highwater.conformance.plugin")
    except ImportError as error:
        from highwater_kafka.collision import collision_line

        found = collision_line()
        if found is None:
            raise
        raise pytest.UsageError(found) from error
