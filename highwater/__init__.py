"""Kafka's replication and group protocols: specifications, a reference broker, and a harness for any broker.

The folders `spec`, `reference`, `conformance`, `fuzz` and `reports` of the repository are imported as `highwater.spec`
and so on. What they share is here: errors and exit codes, the command line, processes, ports and tools.
"""

from typing import Any

from highwater_kafka import DISTRIBUTION as DISTRIBUTION


def __getattr__(name: str) -> Any:
    """Return `__version__` on first use: reading package metadata costs more than the rest of this module."""
    if name == "__version__":
        from highwater_kafka import installed_version

        return installed_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
