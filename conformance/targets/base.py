"""The interface of a target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from highwater.conformance.client.connection import OPEN, Access
from highwater.reference.client.access import client_context
from highwater.reference.client.transport import Transport

STOP_NODE: Final = "stop_node"
PAUSE_NODE: Final = "pause_node"
PROMPT: Final = "prompt"
"""Capability of in-memory implementations: a state that is not reached within seconds is never reached."""


LINKS: Final = "links"
"""Capability of a `FaultTarget`: links between brokers can be cut and slowed down."""
LOST_TAILS: Final = "lost_tails"
"""Capability of a `FaultTarget`: a killed broker can lose what it had not flushed, as after a power failure."""
CLOCKS: Final = "clocks"
"""Capability of a `FaultTarget`: the wall clocks of all brokers can be moved forward."""
REPEATABLE: Final = "repeatable"
"""Capability of a `RepeatableTarget`: a run of a case depends on nothing but the case and the code of the target."""


class CaseEnd(NamedTuple):
    """The end of a case on a repeatable target: a hash of all events, and what broke in the target or empty."""

    fingerprint: str
    broken: str


@dataclass(frozen=True, slots=True)
class SaslListener:
    """A listener that requires a SASL login; `mechanisms` are those with which this user can log in.

    `tls`: the authorities to trust, as a PEM file; empty for the system's, None for a listener without TLS.
    `sessions_ms`: the lifetime of sessions by mechanism (KIP-368); those of other mechanisms do not expire.
    `other_user`: a second user with the same password; empty if there is none.
    """

    address: str
    user: str
    password: str
    mechanisms: tuple[str, ...]
    tls: str | None = None
    sessions_ms: Mapping[str, int] = field(default_factory=dict)
    other_user: str = ""

    @property
    def access(self) -> Access:
        """How to connect without a login; raises UsageError for a PEM file that cannot be read."""
        return OPEN if self.tls is None else Access(client_context(self.tls))


class Target(Protocol):
    """A cluster under test; `addresses` by broker id, `settings` the configuration values that cases may rely on.

    `era` is the Kafka version whose rules the target follows, empty if unknown. `command_config` is the file of client
    properties for its listeners, `sasl` a listener for cases about logins, `transport` how to connect and the clock of
    its time-outs.
    """

    name: str
    version: str
    era: str
    capabilities: frozenset[str]
    settings: Mapping[str, int]
    command_config: Path | None

    @property
    def transport(self) -> Transport: ...

    @property
    def addresses(self) -> Mapping[int, str]: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def sasl(self) -> SaslListener | None:
        """Return None if there is no such listener."""
        ...

    def start_node(self, node: int | str) -> None: ...

    def stop_node(self, node: int | str) -> None: ...

    def kill_node(self, node: int | str) -> None: ...

    def pause_node(self, node: int | str) -> None: ...

    def resume_node(self, node: int | str) -> None: ...

    def revive(self) -> bool:
        """Restart dead nodes; return False if the suite did not launch the target."""
        ...

    def close(self) -> None: ...


class RepeatableTarget(Target, Protocol):
    """A target that begins each case in a state that depends on nothing but the name of the case."""

    def begin_case(self, case: str, settings: Mapping[str, int] = {}) -> None:
        """Begin a case, with more broker settings."""
        ...

    def end_case(self) -> CaseEnd: ...


class FaultTarget(Target, Protocol):
    """A target with faults that no operating system offers for a process; each method needs a capability."""

    def slow_links(self, node: int, others: Sequence[int], delay_ms: int) -> None:
        """Delay each message between a broker and these ones from now on (`LINKS`)."""
        ...

    def cut_links(self, node: int, others: Sequence[int]) -> None:
        """Let no message pass between a broker and these ones from now on (`LINKS`)."""
        ...

    def restore_links(self) -> None:
        """End all cuts and delays."""
        ...

    def kill_losing_tail(self, node: int) -> None:
        """Kill a broker, which loses pages of its files that were not flushed, the later ones first (`LOST_TAILS`)."""
        ...

    def move_clocks(self, seconds: int) -> None:
        """Move the wall clocks of all brokers forward (`CLOCKS`); their timers do not change."""
        ...
