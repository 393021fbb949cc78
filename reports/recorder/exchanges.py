"""What the observers of single APIs share: the recording, the names of topics, who answers, which groups count."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.reference.wire.schema import ZERO_UUID
from highwater.reports.recorder.recording import Operation, Recording

Finish = Callable[[Any | None], None]  # with the reply, or None: the connection was lost


@dataclass(slots=True)
class Cluster:
    """`nodes` are broker ids by address; topic ids are learnt from Metadata."""

    recording: Recording
    groups: Collection[str] = ()
    topics: dict[bytes, str] = field(default_factory=dict)
    nodes: dict[tuple[str, int], int] = field(default_factory=dict)
    lives: dict[tuple[str, int], int] = field(default_factory=dict)  # how often a broker ended a connection
    topics_seen: set[str] = field(default_factory=set)
    by_epoch: set[str] = field(default_factory=set)  # groups of KIP-848, whose members have epochs of their own
    instances: dict[str, str] = field(default_factory=dict)  # of their static members, by member id

    def topic(self, name: str, topic_id: bytes) -> str | None:
        return name or self.topics.get(topic_id)

    def wants(self, group: str) -> bool:
        return not self.groups or group in self.groups


@dataclass(slots=True)
class Link:
    """A client's connection to a broker."""

    cluster: Cluster
    address: tuple[str, int]
    fetching: dict[int, Any] = field(default_factory=dict)  # sessions by id

    @property
    def node(self) -> str:
        """What a broker told before it ended a connection is not held against it afterwards: it may have restarted."""
        known = self.cluster.nodes.get(self.address)
        name = str(known) if known is not None else f"{self.address[0]}:{self.address[1]}"
        life = self.cluster.lives.get(self.address, 0)
        return f"{name}, life {life}" if life else name


def topic_id_of(topic_id: bytes) -> str | None:
    return None if topic_id == ZERO_UUID else topic_id.hex()


def key_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


# Error codes that refuse for certain, whatever was tried before: authorisation, invalid or too large.
REFUSED: Final = frozenset({10, 17, 18, 21, 29, 30, 31, 32, 42, 43, 44, 76, 87})
GROUP_REFUSED: Final = REFUSED | {22, 24, 25, 27, 82}


def outcome_of(codes: Collection[int], refused: Collection[int] = REFUSED) -> str:
    """ok without an error, fail when all of it was refused for certain, info otherwise."""
    if not any(codes):
        return "ok"
    return "fail" if all(code in refused for code in codes) else "info"


def simple(link: Link, operation: Operation, told: Callable[[Any], tuple[str, dict[str, Any]]]) -> Finish:
    """Completes one operation with what `told` makes of the reply; a lost connection tells nothing."""

    def finish(reply: Any | None) -> None:
        kind, fields = ("info", {"error": "connection lost"}) if reply is None else told(reply)
        link.cluster.recording.complete(operation, kind, **fields)

    return finish
