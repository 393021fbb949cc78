"""A broker that somebody else runs: `HOST:PORT[,HOST:PORT...]`."""

from collections.abc import Mapping

from conformance.failures import TargetFailure, Unsupported
from conformance.targets.base import SaslListener
from conformance.targets.discovery import brokers_of
from spec.formats.verdict import UsageError


class ExternalTarget:
    """It has no capabilities: nothing of it is ours to stop."""

    capabilities: frozenset[str] = frozenset()
    settings: Mapping[str, int] = {}
    sasl: SaslListener | None = None

    def __init__(self, name: str) -> None:
        self.name, self.version = name, "unknown"
        try:
            self.addresses: Mapping[int, str] = brokers_of(name.split(",", maxsplit=1)[0])
        except (TargetFailure, ValueError) as error:
            raise UsageError(f"cannot be reached as a broker ({error})", where=name, mend="is it up?") from error

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    def start_node(self, node: int | str) -> None:
        raise Unsupported(f"node {node} is not ours to start")

    stop_node = kill_node = pause_node = resume_node = start_node

    def revive(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to end."""
