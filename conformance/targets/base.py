"""What the suite asks of a target, whoever runs it."""

from collections.abc import Mapping
from typing import Protocol

STOP_NODE = "stop_node"
PAUSE_NODE = "pause_node"


class Target(Protocol):
    """`addresses` by broker id; `settings` are the configuration values that a case may rely on."""

    name: str
    version: str
    capabilities: frozenset[str]
    settings: Mapping[str, int]

    @property
    def addresses(self) -> Mapping[int, str]: ...

    @property
    def bootstrap(self) -> str: ...

    def start_node(self, node: int | str) -> None: ...

    def stop_node(self, node: int | str) -> None: ...

    def kill_node(self, node: int | str) -> None: ...

    def pause_node(self, node: int | str) -> None: ...

    def resume_node(self, node: int | str) -> None: ...

    def revive(self) -> bool:
        """Bring back what died; False where that is not ours to do."""
        ...

    def close(self) -> None: ...
