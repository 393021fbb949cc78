"""How a connection gets in: the client properties that Apache Kafka's own tools take (`--command-config`)."""

from functools import cache
from pathlib import Path
from typing import Final

from reference.drivers.access import Access

__all__ = ["OPEN", "Access", "access_of"]
OPEN: Final = Access()
"""Neither TLS nor SASL."""


@cache
def access_of(command_config: Path | None) -> Access:
    """Without a file neither TLS nor SASL. UsageError for what is missing or unknown in it."""
    return Access.from_file(command_config) if command_config is not None else OPEN
