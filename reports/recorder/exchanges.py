"""State shared by the observers of single APIs: the recording, topic names, node ids and group filter."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.reference.wire.schema import ZERO_UUID
from highwater.reports.recorder.recording import Operation, Recording

Finish = Callable[[Any | None], None]  # called with the reply, or with None if the connection was lost


@dataclass(slots=True)
class Cluster:
    """State of one recording; `nodes` holds broker ids by address, and topic ids are learnt from Metadata."""

    recording: Recording
    groups: Collection[str] = ()
    topics: dict[bytes, str] = field(default_factory=dict)
    nodes: dict[tuple[str, int], int] = field(default_factory=dict)
    lives: dict[tuple[str, int], int] = field(default_factory=dict)  # connections closed by each broker
    topics_seen: set[str] = field(default_factory=set)
    by_epoch: set[str] = field(default_factory=set)  # groups of KIP-848, whose members have epochs of their own
    instances: dict[str, str] = field(default_factory=dict)  # static members of KIP-848 groups

    def topic(self, name: str, topic_id: bytes) -> str | None:
        return name or self.topics.get(topic_id)

    def wants(self, group: str) -> bool:
        return not self.groups or group in self.groups


@dataclass(slots=True)
class Link:
    """A client's connection to a broker."""

    cluster: Cluster
    address: tuple[str, int]
    fetching: dict[int, Any] = field(default_factory=dict)  # incremental fetch sessions by id (KIP-227)

    @property
    def node(self) -> str:
        """Name the broker; the name changes when it closes a connection, since it may have restarted."""
        known = self.cluster.nodes.get(self.address)
        name = str(known) if known is not None else f"{self.address[0]}:{self.address[1]}"
        life = self.cluster.lives.get(self.address, 0)
        return f"{name}, life {life}" if life else name


def topic_id_of(topic_id: bytes) -> str | None:
    return None if topic_id == ZERO_UUID else topic_id.hex()


def key_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


# Error codes that prove the request had no effect: authorisation, invalid or too large.
REFUSED: Final = frozenset({10, 17, 18, 21, 29, 30, 31, 32, 42, 43, 44, 76, 87})
GROUP_REFUSED: Final = REFUSED | {22, 24, 25, 27, 82}


def outcome_of(codes: Collection[int], refused: Collection[int] = REFUSED) -> str:
    """Return ok without an error, fail if every code proves there was no effect, info otherwise."""
    if not any(codes):
        return "ok"
    return "fail" if all(code in refused for code in codes) else "info"


def simple(link: Link, operation: Operation, interpret: Callable[[Any], tuple[str, dict[str, Any]]]) -> Finish:
    """Complete one operation as `interpret` reads the reply, or with info if the connection was lost."""

    def finish(reply: Any | None) -> None:
        kind, fields = ("info", {"error": "connection lost"}) if reply is None else interpret(reply)
        link.cluster.recording.complete(operation, kind, **fields)

    return finish
