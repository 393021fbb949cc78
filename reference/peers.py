"""Requests from this broker to other brokers, with time-outs."""

from dataclasses import dataclass
from typing import Any

from highwater.reference.context import Context
from highwater.reference.effects import Request, Response, broker_peer
from highwater.reference.procedures import Pending

SWEEP = "peer-requests"
SWEEP_MS = 1_000


@dataclass(slots=True)
class Outstanding:
    peer: str
    due_ms: int
    pending: Pending[Any]


class Peers:
    """`call` resolves with the response body, or with None after a time-out or a lost connection."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._correlation_id = 0
        self._outstanding: dict[int, Outstanding] = {}

    def start(self) -> None:
        self._context.timer(SWEEP, SWEEP_MS)

    def call(self, broker_id: int, body: Any, version: int) -> Pending[Any]:
        self._correlation_id += 1
        pending: Pending[Any] = Pending()
        due_ms = self._context.now.monotonic_ms + self._context.config.request_timeout_ms
        peer = broker_peer(broker_id)
        self._outstanding[self._correlation_id] = Outstanding(peer, due_ms, pending)
        self._context.out.send(peer, Request(self._correlation_id, version, body, f"broker-{self._context.broker_id}"))
        return pending

    def receive(self, response: Response) -> None:
        outstanding = self._outstanding.pop(response.correlation_id, None)
        if outstanding is not None:
            outstanding.pending.resolve(response.body)

    def closed(self, peer: str) -> None:
        self._give_up([key for key, waiting in self._outstanding.items() if waiting.peer == peer])

    def sweep(self) -> None:
        now_ms = self._context.now.monotonic_ms
        self._give_up([key for key, waiting in self._outstanding.items() if waiting.due_ms <= now_ms])
        self._context.timer(SWEEP, SWEEP_MS)

    def _give_up(self, keys: list[int]) -> None:
        for key in keys:
            waiting = self._outstanding.pop(key, None)
            if waiting is not None:
                waiting.pending.resolve(None)
