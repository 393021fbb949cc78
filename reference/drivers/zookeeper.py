"""A link to a real ZooKeeper in place of the embedded metadata store: translates store messages to kazoo calls.

The link outlives connections: ZooKeeper's session is the broker's session. When kazoo loses its connection, the broker
gets `closed`. After a reconnect it resumes the session, or begins a new one if the session has expired.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import int_struct, write_string
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from highwater.reference.store.messages import (
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
    Ping,
    SetData,
    Stat,
    StoreReply,
    StoreRequest,
    WatchEvent,
)

PERSISTENT_RECURSIVE: Final = 1
ERRORS: Final[dict[type[Exception], Error]] = {
    NoNodeError: "NoNode",
    NodeExistsError: "NodeExists",
    BadVersionError: "BadVersion",
    NotEmptyError: "NotEmpty",
    NoChildrenForEphemeralsError: "NoChildrenForEphemerals",
    SessionExpiredError: "SessionExpired",
    ConnectionLoss: "ConnectionLoss",
    ConnectionClosedError: "ConnectionLoss",
}
ZOOKEEPER_ERRORS: Final = tuple(ERRORS)
KINDS: Final = {EventType.CREATED: "created", EventType.DELETED: "deleted", EventType.CHANGED: "changed"}
Deliver = Callable[[StoreReply | WatchEvent], None]


class AddWatchRequest(NamedTuple):
    """ZooKeeper's AddWatch (since 3.6), which kazoo 2.11 does not have."""

    path: str
    mode: int
    type: int = 106

    def serialize(self) -> bytearray:
        return bytearray(write_string(self.path) + int_struct.pack(self.mode))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> bool:
        return True


class PersistentWatchers(defaultdict[str, set[Any]]):
    """kazoo removes the watchers of a path when an event for it arrives; this mapping keeps one for all paths."""

    def __init__(self, permanent: Callable[[WatchedEvent], None]) -> None:
        super().__init__(set)
        self._permanent = permanent

    def pop(self, path: str, default: Any = ()) -> Any:
        return [*super().pop(path, default), self._permanent]


class ZooKeeperLink:
    """A channel (see `drivers.tcp`) to ZooKeeper. `deliver` and `closed` are called in the event loop."""

    def __init__(self, hosts: str, deliver: Deliver, closed: Callable[[], None]) -> None:
        self._hosts, self._deliver, self._closed = hosts, deliver, closed
        self._loop = asyncio.get_running_loop()
        self._client: KazooClient | None = None
        self._watch_paths: list[str] = []
        self._connecting: StoreRequest | None = None
        self._connected = False

    # -- from the broker -------------------------------------------------------------------------

    def send(self, request: StoreRequest) -> None:
        operation = request.operation
        if isinstance(operation, Connect):
            self._connect(request, operation)
        elif self._client is None or not self._connected:
            self._deliver(StoreReply(request.xid, error="ConnectionLoss"))
        elif isinstance(operation, Ping):
            self._deliver(StoreReply(request.xid))  # kazoo keeps the session alive
        elif isinstance(operation, CloseSession):
            self._end_session(request.xid)
        else:
            self._perform(self._client, request)

    def close(self) -> None:
        client, self._client, self._connected = self._client, None, False
        if client is not None:
            self._loop.run_in_executor(None, _stop, client)

    # -- sessions --------------------------------------------------------------------------------

    def _connect(self, request: StoreRequest, operation: Connect) -> None:
        """Begin or resume a session; the reply is sent when kazoo is connected."""
        if operation.session_id and self._client is None:
            self._deliver(StoreReply(request.xid, error="SessionExpired"))
            return
        self._connecting = request
        if self._client is None:
            self._start(operation.timeout_ms)
        elif self._connected:
            self._answer_connect()

    def _start(self, timeout_ms: int) -> None:
        retry_always = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5)
        client = KazooClient(
            self._hosts, timeout=timeout_ms / 1000, connection_retry=retry_always, handler=SequentialThreadingHandler()
        )
        client._data_watchers = PersistentWatchers(lambda event: self._call_in_loop(self._handle_event, client, event))
        client.add_listener(lambda state: self._call_in_loop(self._handle_state, client, state))
        self._client, self._watch_paths = client, []
        client.start_async()

    def _call_in_loop(self, step: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call in the event loop: kazoo calls its listeners from its own threads."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(step, *arguments)

    def _handle_state(self, client: KazooClient, state: str) -> None:
        if client is not self._client:
            return
        if state == KazooState.CONNECTED:
            self._connected = True
            for path in self._watch_paths:
                self._add_watch(client, path)
            self._answer_connect()
            return
        was_up, self._connected = self._connected, False
        if state == KazooState.LOST:
            self.close()
            if self._connecting is not None:
                expired, self._connecting = self._connecting, None
                self._deliver(StoreReply(expired.xid, error="SessionExpired"))
        if was_up:
            self._closed()

    def _answer_connect(self) -> None:
        if self._connecting is not None and self._client is not None and self._client.client_id is not None:
            request, self._connecting = self._connecting, None
            self._deliver(StoreReply(request.xid, session_id=self._client.client_id[0]))

    def _end_session(self, xid: int) -> None:
        client, self._client, self._connected = self._client, None, False
        stopping = self._loop.run_in_executor(None, _stop, client)
        stopping.add_done_callback(lambda _: self._deliver(StoreReply(xid)))

    # -- operations ------------------------------------------------------------------------------

    def _perform(self, client: KazooClient, request: StoreRequest) -> None:
        xid = request.xid
        match request.operation:
            case Create(path, data, ephemeral):
                pending = client.create_async(path, data, ephemeral=ephemeral, include_data=True)
                self._answer(xid, pending, lambda found: StoreReply(xid, stat=_stat(found[1])))
            case SetData(path, data, version):
                pending = client.set_async(path, data, version)
                self._answer(xid, pending, lambda found: StoreReply(xid, stat=_stat(found)))
            case Delete(path, version):
                self._answer(xid, client.delete_async(path, version), lambda _: StoreReply(xid))
            case Get(path):
                pending = client.get_async(path)
                self._answer(xid, pending, lambda found: StoreReply(xid, data=found[0], stat=_stat(found[1])))
            case Children(path):
                pending = client.get_children_async(path)
                self._answer(xid, pending, lambda found: StoreReply(xid, children=tuple(sorted(found))))
            case AddWatch(path):
                self._watch_paths.append(path)
                self._answer(xid, self._add_watch(client, path), lambda _: StoreReply(xid))
            case Multi(operations):
                pending = self._begin_multi(client, operations)
                self._answer(xid, pending, lambda results: _multi_reply(xid, results))
            case other:  # pragma: no cover
                raise AssertionError(f"not a store operation: {other!r}")

    def _answer(self, xid: int, pending: Any, convert: Callable[[Any], StoreReply]) -> None:
        def done(result: Any) -> None:
            try:
                reply = convert(result.get_nowait())
            except ZOOKEEPER_ERRORS as error:
                reply = StoreReply(xid, error=_error(error))
            self._call_in_loop(self._deliver, reply)

        pending.rawlink(done)

    def _begin_multi(self, client: KazooClient, operations: Iterable[Create | SetData | Delete | Check]) -> Any:
        transaction = client.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return transaction.commit_async()

    def _add_watch(self, client: KazooClient, path: str) -> Any:
        pending = client.handler.async_result()
        client._call(AddWatchRequest(path, PERSISTENT_RECURSIVE), pending)
        return pending

    def _handle_event(self, client: KazooClient, event: WatchedEvent) -> None:
        if client is self._client and event.type in KINDS:
            self._deliver(WatchEvent(KINDS[event.type], event.path))  # type: ignore[arg-type]


def _stat(found: ZnodeStat) -> Stat:
    return Stat(found.version, found.czxid, found.ephemeralOwner)


def _error(error: Exception) -> Error:
    return next(name for kind, name in ERRORS.items() if isinstance(error, kind))


def _multi_reply(xid: int, results: list[Any]) -> StoreReply:
    """Return the reply to a multi: one stat per Create or SetData, or the error of the operation that failed."""
    failed = [result for result in results if isinstance(result, ZOOKEEPER_ERRORS)]
    if failed:
        return StoreReply(xid, error=_error(failed[0]))
    return StoreReply(xid, stats=tuple(_stat(result) if isinstance(result, ZnodeStat) else None for result in results))


def _stop(client: KazooClient) -> None:
    client.stop()
    client.close()
