"""What pytest finds by itself where Highwater is installed: the plugin, in a run that is about the suite.

A plugin that every pytest run on the machine would load must not cost or change anything: this one only looks at the
arguments.
"""

from collections.abc import Sequence
from typing import Final

import pytest

OURS: Final = ("--hw-", "highwater.conformance.cases")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: Sequence[str]) -> None:
    """The last moment at which options can still be added."""
    if any(argument.startswith(OURS) for argument in args):
        early_config.pluginmanager.import_plugin("highwater.conformance.plugin")
