"""The controller's request queue for each broker: in order, retried until the broker answers, fails or restarts."""

from collections.abc import Callable
from typing import Any

from reference.peers import Peers
from reference.procedures import Inbox, Pending, spawn
from reference.replication.purgatory import Purgatory

RETRY_MS = 100


class Channel:
    """The request queue of one broker, one request in flight. Apache Kafka: RequestSendThread."""

    def __init__(self, peers: Peers, purgatory: Purgatory, broker_id: int, is_current: Callable[[], bool]) -> None:
        self._peers, self._purgatory, self._broker_id = peers, purgatory, broker_id
        self._is_current = is_current
        self._inbox: Inbox[tuple[Any, int, Pending[Any]]] = Inbox()
        spawn(self._run())

    def send(self, body: Any, version: int) -> Pending[Any]:
        """Queue a request; resolve with the response, or with None once `is_current` returns False."""
        pending: Pending[Any] = Pending()
        self._inbox.put((body, version, pending))
        return pending

    async def _run(self) -> None:
        while True:
            body, version, pending = await self._inbox.take()
            reply = None
            while self._is_current() and reply is None:
                reply = await self._peers.call(self._broker_id, body, version)
                if reply is None:
                    await self._purgatory.sleep(RETRY_MS)
            pending.resolve(reply)
