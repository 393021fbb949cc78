"""A client that writes what no broker may store: unreadable batches, and records of internal topics."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.clients.producers import PRODUCE_VERSION, RETRY_MS, Client, produce_request
from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC, TOPIC, TRANSACTIONS_TOPIC
from highwater.reference.drivers.simulation.chance import Chance
from highwater.reference.drivers.simulation.world import WALL_CLOCK_START_MS
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.invalid_batches import InvalidBatch, invalid_batches
from highwater.reference.wire.records import build_batch

INTERNAL: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
ODD_RECORDS: Final = InvalidBatch(
    "records that no coordinator wrote",
    build_batch([(WALL_CLOCK_START_MS, b"\x00\x07odd", b"\xff", ()), (WALL_CLOCK_START_MS, b"", b"", ())]),
    (ErrorCode.INVALID_TOPIC_EXCEPTION,),
)


class Intruder(Client):
    """Sends one invalid batch after the other with acks=all, to one broker after the other.

    `on_stored(what)` is called if a broker says that it stored one; `on_refused()` if it refused one for what it is.
    """

    def __init__(
        self, brokers: list[int], chance: Chance, on_stored: Callable[[str], None], on_refused: Callable[[], None]
    ) -> None:
        super().__init__(brokers)
        self._draw = partial(chance.draw, "invalid batch")
        self._on_stored, self._on_refused = on_stored, on_refused
        self._invalid = [(TOPIC, batch) for batch in invalid_batches(WALL_CLOCK_START_MS)]
        self._invalid += [(topic, ODD_RECORDS) for topic in INTERNAL]
        self._sent = self._invalid[0]
        self._requests_sent = 0

    def _send_next(self) -> None:
        self._requests_sent += 1
        topic, batch = self._sent = self._invalid[self._draw(self._requests_sent, len(self._invalid))]
        self._send_request(self._next_broker(), produce_request(topic, 0, batch.batch, pace=self.pace), PRODUCE_VERSION)

    def _handle_reply(self, body: Any) -> None:
        error = ErrorCode(body.responses[0].partition_responses[0].error_code)
        topic, batch = self._sent
        if error is ErrorCode.NONE:
            self._on_stored(f"{batch.name} in {topic}")
        elif error in batch.errors:
            self._on_refused()
        self._set_timer(RETRY_MS)
