"""A broker's session with the metadata store: requests, watches, reconnection and expiry."""

from collections.abc import Callable

from highwater.reference.context import Context
from highwater.reference.effects import STORE
from highwater.reference.procedures import Pending, spawn
from highwater.reference.store.messages import (
    AddWatch,
    Check,
    Children,
    CloseSession,
    Connect,
    Create,
    Delete,
    Get,
    Multi,
    Operation,
    Ping,
    SetData,
    StoreReply,
    StoreRequest,
    WatchEvent,
)

PING = "store-ping"
RECONNECT = "store-reconnect"
RECONNECT_MS = 100


class StoreClient:
    """Calls `on_session` for a new session, `on_resumed` after a reconnection, `on_event` for each watch event.

    While the link is down every request resolves with `ConnectionLoss`: whether a write took effect is unknown.
    """

    def __init__(
        self,
        context: Context,
        *,
        on_session: Callable[[], None],
        on_event: Callable[[WatchEvent], None],
        on_resumed: Callable[[], None],
    ) -> None:
        self._context = context
        self._on_session, self._on_event, self._on_resumed = on_session, on_event, on_resumed
        self._session_id = 0
        self._xid = 0
        self._waiting: dict[int, Pending[StoreReply]] = {}
        self._connected = False
        self._closing = False

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def connected(self) -> bool:
        return self._connected

    def start(self) -> None:
        self._context.timer(PING, self._ping_ms)
        spawn(self._connect())

    @property
    def _ping_ms(self) -> int:
        return self._context.config.metadata_store_session_timeout_ms // 4

    async def _connect(self) -> None:
        if self._closing:
            return
        timeout_ms = self._context.config.metadata_store_session_timeout_ms
        resumed = self._session_id
        reply = await self._send(Connect(self._session_id, timeout_ms))
        if reply.error == "SessionExpired":
            self._session_id = 0
            reply = await self._send(Connect(0, timeout_ms))
        if reply.error:
            self._context.timer(RECONNECT, RECONNECT_MS)
            return
        self._session_id, self._connected = reply.session_id, True
        if reply.session_id == resumed:
            self._on_resumed()
        else:
            self._on_session()

    def _send(self, operation: Operation) -> Pending[StoreReply]:
        self._xid += 1
        pending: Pending[StoreReply] = Pending()
        self._waiting[self._xid] = pending
        self._context.out.send(STORE, StoreRequest(self._xid, self._session_id, operation))
        return pending

    def call(self, operation: Operation) -> Pending[StoreReply]:
        if self._connected:
            return self._send(operation)
        pending: Pending[StoreReply] = Pending()
        pending.resolve(StoreReply(0, error="ConnectionLoss"))
        return pending

    def close(self) -> Pending[StoreReply]:
        """End the session; the store deletes its ephemeral nodes immediately."""
        self._closing = True
        return self.call(CloseSession())

    def get(self, path: str) -> Pending[StoreReply]:
        return self.call(Get(path))

    def children(self, path: str) -> Pending[StoreReply]:
        return self.call(Children(path))

    def set(self, path: str, data: bytes, version: int = -1) -> Pending[StoreReply]:
        return self.call(SetData(path, data, version))

    def watch(self, path: str) -> Pending[StoreReply]:
        return self.call(AddWatch(path))

    def begin_ensure(self, path: str) -> list[Pending[StoreReply]]:
        """Send the creation of a persistent node and its parents without waiting; existing ones return NodeExists."""
        parts = path.strip("/").split("/")
        return [self.call(Create("/" + "/".join(parts[:depth]))) for depth in range(1, len(parts) + 1)]

    async def ensure(self, path: str) -> bool:
        """Create a persistent node and its parents; return whether it exists now."""
        error = ""
        for pending in self.begin_ensure(path):
            error = (await pending).error
        return error in {"", "NodeExists"}

    def multi(self, *operations: Create | SetData | Delete | Check) -> Pending[StoreReply]:
        return self.call(Multi(operations))

    # -- from the broker's entry points ------------------------------------------------------------

    def receive(self, message: StoreReply | WatchEvent) -> None:
        if isinstance(message, WatchEvent):
            self._on_event(message)
            return
        pending = self._waiting.pop(message.xid, None)
        if message.error == "SessionExpired" and self._connected:
            self._fail_pending()
            self._session_id = 0
            spawn(self._connect())
        if pending is not None:
            pending.resolve(message)

    def fire(self, timer: str) -> None:
        if timer == PING:
            self._context.timer(PING, self._ping_ms)
            if self._connected:
                self._send(Ping())
        elif not self._connected:
            spawn(self._connect())

    def closed(self) -> None:
        """Fail every pending request after the link broke; their writes may have taken effect."""
        self._fail_pending()
        self._context.timer(RECONNECT, RECONNECT_MS)

    def _fail_pending(self) -> None:
        self._connected = False
        waiting, self._waiting = self._waiting, {}
        for pending in waiting.values():
            pending.resolve(StoreReply(0, error="ConnectionLoss"))
