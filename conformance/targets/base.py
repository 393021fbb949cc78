"""What the suite asks of a target, whoever runs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

STOP_NODE: Final = "stop_node"
PAUSE_NODE: Final = "pause_node"
PROMPT: Final = "prompt"
"""All is in memory, and nothing waits for another process: what does not come within seconds never comes."""


@dataclass(frozen=True, slots=True)
class SaslListener:
    """Where a client must log in before it is answered, without TLS; `mechanisms` are those of SaslHandshake."""

    address: str
    user: str
    password: str
    mechanisms: tuple[str, ...]


class Target(Protocol):
    """`addresses` by broker id; `settings` are the configuration values that a case may rely on.

    `era` is the Kafka version whose rules it follows, empty where nobody said.
    `command_config` names the client properties that its listeners want, `sasl` a listener for those who try to get in.
    """

    name: str
    version: str
    era: str
    capabilities: frozenset[str]
    settings: Mapping[str, int]
    command_config: Path | None

    @property
    def addresses(self) -> Mapping[int, str]: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def sasl(self) -> SaslListener | None:
        """None where there is no such listener."""
        ...

    def start_node(self, node: int | str) -> None: ...

    def stop_node(self, node: int | str) -> None: ...

    def kill_node(self, node: int | str) -> None: ...

    def pause_node(self, node: int | str) -> None: ...

    def resume_node(self, node: int | str) -> None: ...

    def revive(self) -> bool:
        """Bring back what died; False where that is not ours to do."""
        ...

    def close(self) -> None: ...
