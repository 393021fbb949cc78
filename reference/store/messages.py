"""Messages between brokers and the metadata store, with a subset of ZooKeeper's semantics.

`version` is the version of a node's data; -1 matches any version. A watch is persistent and recursive, as ZooKeeper's
AddWatch since 3.6. Errors have ZooKeeper's names.
"""

from typing import Any, Literal

import msgspec

Error = Literal[
    "", "NoNode", "NodeExists", "BadVersion", "NotEmpty", "NoChildrenForEphemerals", "SessionExpired", "ConnectionLoss"
]
ANY_VERSION = -1


class TraceLabel(msgspec.Struct, frozen=True, array_like=True):
    """The protocol step that a write performs; the store traces it when the write takes effect."""

    entity: str
    action: str
    node: int
    state: dict[str, Any]


class Create(msgspec.Struct, frozen=True, tag="create", array_like=True):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    label: TraceLabel | None = None


class SetData(msgspec.Struct, frozen=True, tag="set", array_like=True):
    path: str
    data: bytes
    version: int = ANY_VERSION
    label: TraceLabel | None = None


class Delete(msgspec.Struct, frozen=True, tag="delete", array_like=True):
    path: str
    version: int = ANY_VERSION


class Check(msgspec.Struct, frozen=True, tag="check", array_like=True):
    path: str
    version: int


class Get(msgspec.Struct, frozen=True, tag="get", array_like=True):
    path: str


class Children(msgspec.Struct, frozen=True, tag="children", array_like=True):
    path: str


class AddWatch(msgspec.Struct, frozen=True, tag="watch", array_like=True):
    path: str


class Multi(msgspec.Struct, frozen=True, tag="multi", array_like=True):
    """Apply all operations or none."""

    operations: tuple[Create | SetData | Delete | Check, ...]


class Connect(msgspec.Struct, frozen=True, tag="connect", array_like=True):
    """Begin a session, or resume one (`session_id` not 0)."""

    session_id: int
    timeout_ms: int


class Ping(msgspec.Struct, frozen=True, tag="ping", array_like=True):
    pass


class CloseSession(msgspec.Struct, frozen=True, tag="close", array_like=True):
    pass


Operation = Create | SetData | Delete | Check | Get | Children | AddWatch | Multi | Connect | Ping | CloseSession


class Stat(msgspec.Struct, frozen=True, array_like=True):
    """`created` is the id of the transaction that created the node; it is used as broker epoch (KIP-380)."""

    version: int
    created: int
    ephemeral_owner: int = 0


class StoreRequest(msgspec.Struct, frozen=True, tag="request", array_like=True):
    xid: int
    session_id: int
    operation: Operation


class StoreReply(msgspec.Struct, frozen=True, tag="reply", array_like=True):
    xid: int
    error: Error = ""
    data: bytes = b""
    children: tuple[str, ...] = ()
    stat: Stat | None = None
    session_id: int = 0
    stats: tuple[Stat | None, ...] = ()


class WatchEvent(msgspec.Struct, frozen=True, tag="event", array_like=True):
    kind: Literal["created", "deleted", "changed"]
    path: str


StoreMessage = StoreRequest | StoreReply | WatchEvent
