"""The metadata store: one durable process with a tree of small nodes and ZooKeeper's semantics.

It has sessions, ephemeral nodes, versions, persistent recursive watches and multi. Every write is appended to the log
and flushed before it takes effect or is answered. The requests of all sessions take effect in one order; a read waits
for the writes that arrived before it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from highwater.reference.configuration.broker import StoreConfig
from highwater.reference.effects import Effect, Flush, Instant, Outbox, SetTimer, Trace
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.store.consumer_steps import Change, steps_of_change, steps_of_expiry
from highwater.reference.store.log import StoreLog
from highwater.reference.store.messages import (
    ANY_VERSION,
    AddWatch,
    Check,
    Children,
    CloseSession,
    Connect,
    Create,
    Delete,
    Error,
    Get,
    Multi,
    Operation,
    Ping,
    SetData,
    Stat,
    StoreReply,
    StoreRequest,
    TraceLabel,
    WatchEvent,
)

T = TypeVar("T")
TICK = "tick"
FLUSHED, SNAPSHOT, RECOVERED = "flushed", "snapshot", "recovered"
WRITES = Create | SetData | Delete | Multi | Connect | CloseSession


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One logged write: the session that requested it, and the operation."""

    session_id: int
    operation: Operation


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All nodes (path, data, stat), parents before children, and all sessions (id, time-out in ms); no watches."""

    zxid: int
    nodes: tuple[tuple[str, bytes, Stat], ...]
    sessions: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Znode:
    data: bytes
    stat: Stat
    children: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Session:
    timeout_ms: int
    last_heard_ms: int
    peer: str | None = None
    last_peer: str | None = None
    watches: set[str] = field(default_factory=set)
    ephemerals: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    source: str | None  # None: the store expires a session
    xid: int
    entry: Entry


class RefusedError(Exception):
    def __init__(self, error: Error) -> None:
        super().__init__(error)
        self.error: Error = error


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class MetadataStore:
    def __init__(self, config: StoreConfig, fs: FileSystem, *, tracing: bool = False) -> None:
        self.config = config
        self._log = StoreLog(fs, config.snapshot_bytes)
        self._out = Outbox(tracing=tracing)
        self._now = Instant(0, 0)
        self._tree: dict[str, Znode] = {"/": Znode(b"", Stat(0, 0))}
        self._sessions: dict[int, Session] = {}
        self._zxid = 0
        self._queue: deque[QueuedRequest] = deque()
        self._flushing: tuple[QueuedRequest, ...] = ()
        self._recovered = True  # False until the replayed logs are flushed
        self._encoder = msgspec.msgpack.Encoder()

    # -- entry points ----------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        self._now = now
        self._recover()
        self._out.drain()  # the effects of replayed writes were sent before the restart
        if self._log.replayed:  # it may only be in the page cache: flush it before a client reads it
            self._recovered = False
            self._out.add(Flush(self._log.replayed, RECOVERED))
        self._out.add(SetTimer(TICK, now.monotonic_ms + self.config.tick_ms))
        return self._out.drain()

    def receive(self, now: Instant, source: str, message: StoreRequest) -> list[Effect]:
        self._now = now
        session = self._sessions.get(message.session_id)
        if session is not None:
            session.last_heard_ms = now.monotonic_ms
            session.peer = source
        self._queue.append(QueuedRequest(source, message.xid, Entry(message.session_id, message.operation)))
        self._process_queue()
        return self._out.drain()

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        self._now = now
        for session_id, session in list(self._sessions.items()):
            if now.monotonic_ms - session.last_heard_ms > session.timeout_ms:
                session.last_heard_ms = now.monotonic_ms  # so that the expiry is queued only once
                self._queue.append(QueuedRequest(None, 0, Entry(session_id, CloseSession())))
        self._out.add(SetTimer(TICK, now.monotonic_ms + self.config.tick_ms))
        self._process_queue()
        return self._out.drain()

    def complete(self, now: Instant, token: str) -> list[Effect]:
        self._now = now
        if token == SNAPSHOT:
            self._log.finish_snapshot()
            return self._out.drain()
        self._recovered = True
        flushed, self._flushing = self._flushing, ()
        for queued in flushed:
            self._apply(queued)
        if self._log.needs_snapshot:
            self._out.add(Flush((self._log.begin_snapshot(self._zxid, self._snapshot()),), SNAPSHOT))
        self._process_queue()
        return self._out.drain()

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        """Forget a session's connection; the session itself ends only by its time-out."""
        for session in self._sessions.values():
            if session.peer == peer:
                session.peer, session.last_peer = None, peer
        return []

    def expire(self, now: Instant, peer: str) -> list[Effect]:
        """Expire the session of a peer immediately; for scenarios."""
        self._now = now
        for session_id, session in self._sessions.items():
            if peer in {session.peer, session.last_peer}:
                self._queue.append(QueuedRequest(None, 0, Entry(session_id, CloseSession())))
        self._process_queue()
        return self._out.drain()

    def has_session(self, session_id: int) -> bool:
        """Return whether this session has neither ended nor expired."""
        return session_id in self._sessions

    def peek(self, path: str, parse: Callable[[bytes, int], T]) -> T | None:
        """Return `parse(data, version)` of a node, or None if it does not exist; for checks in simulations."""
        node = self._tree.get(path)
        return parse(node.data, node.stat.version) if node else None

    def names(self, path: str) -> list[str]:
        """Return the names of the children of a node, sorted; for checks in simulations."""
        return sorted(self._tree[path].children) if path in self._tree else []

    # -- log -------------------------------------------------------------------------------------

    def _process_queue(self) -> None:
        """Answer the reads at the head of the queue; at the first write, flush all queued writes together."""
        while self._queue and self._recovered and not self._flushing:
            if not isinstance(self._queue[0].entry.operation, WRITES):
                self._apply(self._queue.popleft())
                continue
            self._flushing = tuple(self._queue)
            self._queue.clear()
            writes = [queued.entry for queued in self._flushing if isinstance(queued.entry.operation, WRITES)]
            path = self._log.append([self._encoder.encode(entry) for entry in writes])
            self._out.add(Flush((path,), FLUSHED))

    def _recover(self) -> None:
        decoder = msgspec.msgpack.Decoder(Entry)
        self._log.recover(self._load, lambda body: self._apply(QueuedRequest(None, 0, decoder.decode(body))))
        for session in self._sessions.values():
            session.last_heard_ms = self._now.monotonic_ms

    def _snapshot(self) -> bytes:
        nodes = tuple((path, node.data, node.stat) for path, node in sorted(self._tree.items()))
        sessions = tuple((key, session.timeout_ms) for key, session in self._sessions.items())
        return self._encoder.encode(Snapshot(self._zxid, nodes, sessions))

    def _load(self, data: bytes) -> None:
        snapshot = msgspec.msgpack.decode(data, type=Snapshot)
        self._zxid, self._tree = snapshot.zxid, {path: Znode(data, stat) for path, data, stat in snapshot.nodes}
        self._sessions = {key: Session(timeout_ms, 0) for key, timeout_ms in snapshot.sessions}
        for path, node in self._tree.items():
            if path != "/":
                self._tree[parent_of(path)].children.add(path.rpartition("/")[2])
            if node.stat.ephemeral_owner:
                self._sessions[node.stat.ephemeral_owner].ephemerals.add(path)

    # -- operations ------------------------------------------------------------------------------

    def _apply(self, queued: QueuedRequest) -> None:
        operation, session_id = queued.entry.operation, queued.entry.session_id
        if isinstance(operation, WRITES):
            self._zxid += 1
        if isinstance(operation, Connect):
            reply = self._connect(queued, operation, session_id)
        elif session_id not in self._sessions:
            reply = StoreReply(queued.xid, error="SessionExpired")
        else:
            try:
                reply = self._perform(queued.xid, session_id, operation)
            except RefusedError as refused:
                reply = StoreReply(queued.xid, error=refused.error)
        if queued.source is not None:
            self._out.send(queued.source, reply)

    def _connect(self, queued: QueuedRequest, operation: Connect, session_id: int) -> StoreReply:
        if operation.session_id and operation.session_id not in self._sessions:
            return StoreReply(queued.xid, error="SessionExpired")
        session_id = operation.session_id or self._zxid
        session = self._sessions.setdefault(session_id, Session(operation.timeout_ms, self._now.monotonic_ms))
        session.peer, session.last_heard_ms = queued.source, self._now.monotonic_ms
        return StoreReply(queued.xid, session_id=session_id)

    def _perform(self, xid: int, session_id: int, operation: Operation) -> StoreReply:
        match operation:
            case Get(path):
                node = self._existing(path)
                return StoreReply(xid, data=node.data, stat=node.stat)
            case Children(path):
                return StoreReply(xid, children=tuple(sorted(self._existing(path).children)))
            case AddWatch(path):
                self._sessions[session_id].watches.add(path)
            case CloseSession():
                if self._out.tracing:
                    self._add_all(steps_of_expiry(self._sessions[session_id].ephemerals))
                for path in sorted(self._sessions[session_id].ephemerals):
                    self._delete(path)
                del self._sessions[session_id]
            case Multi(operations):
                self._check_all(operations)
                return StoreReply(xid, stats=tuple(self._write(session_id, part) for part in operations))
            case Create() | SetData() | Delete() | Check():
                self._check_all((operation,))
                return StoreReply(xid, stat=self._write(session_id, operation))
            case Ping() | Connect():
                pass
        return StoreReply(xid)

    def _existing(self, path: str) -> Znode:
        node = self._tree.get(path)
        if node is None:
            raise RefusedError("NoNode")
        return node

    def _check_all(self, operations: tuple[Create | SetData | Delete | Check, ...]) -> None:
        """Raise RefusedError if an operation would fail after those before it; nothing is written."""
        changed: dict[str, Create | None] = {}  # path -> its creation by an earlier operation, or None if deleted

        def exists(path: str) -> bool:
            return changed[path] is not None if path in changed else path in self._tree

        for operation in operations:
            path, parent = operation.path, parent_of(operation.path)
            if isinstance(operation, Create):
                if exists(path):
                    raise RefusedError("NodeExists")
                if not exists(parent):
                    raise RefusedError("NoNode")
                created_parent = changed.get(parent)
                if created_parent.ephemeral if created_parent else self._tree[parent].stat.ephemeral_owner:
                    raise RefusedError("NoChildrenForEphemerals")
                changed[path] = operation
                continue
            if not exists(path):
                raise RefusedError("NoNode")
            if operation.version != ANY_VERSION and path not in changed:
                self._check_version(path, operation.version)
            if isinstance(operation, Delete):
                if any(exists(child) for child in self._children(path, changed)):
                    raise RefusedError("NotEmpty")
                changed[path] = None

    def _children(self, path: str, changed: Iterable[str]) -> Iterator[str]:
        if path in self._tree:
            yield from (f"{path}/{name}" for name in self._tree[path].children)
        yield from (child for child in changed if parent_of(child) == path)

    def _check_version(self, path: str, version: int) -> None:
        if self._tree[path].stat.version != version:
            raise RefusedError("BadVersion")

    def _write(self, session_id: int, operation: Create | SetData | Delete | Check) -> Stat | None:
        if self._out.tracing and not isinstance(operation, Check):
            change: Change = "deleted" if isinstance(operation, Delete) else "written"
            data = self._tree[operation.path].data if isinstance(operation, Delete) else operation.data
            self._add_all(steps_of_change(change, operation.path, data, self._sessions[session_id].ephemerals))
        match operation:
            case Create(path, data, ephemeral, label):
                stat = Stat(0, self._zxid, session_id if ephemeral else 0)
                self._tree[path] = Znode(data, stat)
                self._tree[parent_of(path)].children.add(path.rpartition("/")[2])
                if ephemeral:
                    self._sessions[session_id].ephemerals.add(path)
                self._announce("created", path)
                self._trace(label, stat)
                return stat
            case SetData(path, data, _, label):
                node = self._tree[path]
                node.data = data
                node.stat = msgspec.structs.replace(node.stat, version=node.stat.version + 1)
                self._announce("changed", path)
                self._trace(label, node.stat)
                return node.stat
            case Delete(path):
                self._delete(path)
        return None

    def _delete(self, path: str) -> None:
        node = self._tree.pop(path)
        self._tree[parent_of(path)].children.discard(path.rpartition("/")[2])
        owner = self._sessions.get(node.stat.ephemeral_owner)
        if owner is not None:
            owner.ephemerals.discard(path)
        self._announce("deleted", path)

    def _announce(self, kind: str, path: str) -> None:
        for session in self._sessions.values():
            watched = any(path == root or path.startswith(root.rstrip("/") + "/") for root in session.watches)
            if watched and session.peer is not None:
                self._out.send(session.peer, WatchEvent(kind, path))  # type: ignore[arg-type]

    def _add_all(self, steps: Iterable[Trace]) -> None:
        for step in steps:
            self._out.add(step)

    def _trace(self, label: TraceLabel | None, stat: Stat) -> None:
        if label is not None and self._out.tracing:
            state = {**label.state, "partition_epoch": stat.version}
            self._out.add(Trace(label.entity, label.action, label.node, state=state))
