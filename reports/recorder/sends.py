"""Observer of Produce: each record is a send, and a client's retries of it belong to the same send."""

from dataclasses import dataclass, field
from typing import Any, Final

from highwater.reports.recorder.exchanges import REFUSED, Finish, Link
from highwater.reports.recorder.recording import Operation
from highwater.reports.recorder.records import Undecoded, batches, key_text, sequence_of, value_of
from highwater.reports.recorder.transactions import Transactions

ACKS: Final = {0: "0", 1: "1", -1: "all"}
WEAKER: Final = {None: 3, "all": 2, "1": 1, "0": 0}
OPEN_SENDS: Final = 1_000_000  # sends without a final answer; the oldest are dropped beyond this
DUPLICATE_SEQUENCE: Final = 46
Place = tuple[int, int, int]
"""Producer id, epoch and sequence."""
Identity = tuple[str, int, str, Place | None, tuple[str, int]]
"""Topic, partition, value, the place among the records of an idempotent producer, and its transaction and timestamp.

After a refusal a producer may use a sequence number again: that record is another send, in its own transaction.
"""


@dataclass(slots=True)
class Batch:
    """The sends of one partition, each with its offset delta in the batch."""

    topic: str
    partition: int
    sends: list[tuple[Identity, int]] = field(default_factory=list)


class Sends:
    """Sends without a final outcome, by identity, and the acknowledged ones of idempotent producers.

    A batch that is sent again after its acknowledgement is no new send: the broker answers from the producer's state.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._open: dict[Identity, Operation] = {}
        self._attempts: dict[Identity, int] = {}
        self._acknowledged: dict[tuple[str, int, Place], None] = {}

    def request(self, link: Link, request: Any) -> Finish:
        cluster, sent = link.cluster, dict[tuple[bytes | str, int], Batch]()
        acks = ACKS.get(request.acks, "all")
        if WEAKER[acks] < WEAKER[cluster.recording.config.acks]:
            cluster.recording.update_config(acks=acks)
        for topic_data in request.topic_data:
            topic = cluster.topic(topic_data.name, topic_data.topic_id)
            for part in topic_data.partition_data:
                if topic is None:
                    cluster.recording.unrecorded("Produce to a topic id that no Metadata reply contained")
                    continue
                cluster.topics_seen.add(topic)
                batch = sent[topic_data.name or topic_data.topic_id, part.index] = Batch(topic, part.index)
                self._batch(link, batch, part.records, request.transactional_id)
        return lambda reply: self._answered(link, sent, reply, silent=request.acks == 0)

    def _batch(self, link: Link, batch: Batch, data: bytes | None, transactional_id: str | None) -> None:
        recording = link.cluster.recording
        try:
            for header, records in batches(data):
                if recording.config.idempotence is not False:
                    recording.update_config(idempotence=header.producer_id >= 0)
                fields: dict[str, Any] = {}
                if header.producer_id >= 0:
                    fields = {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
                if header.is_transactional:
                    fields["txn"] = self._transactions.current(
                        link, header.producer_id, header.producer_epoch, transactional_id
                    )
                for record in records:
                    value = value_of(header, record)
                    place: Place | None = None
                    if header.producer_id >= 0:
                        fields["sequence"] = sequence_of(header, record)
                        place = (header.producer_id, header.producer_epoch, fields["sequence"])
                        if (batch.topic, batch.partition, place) in self._acknowledged:
                            continue
                    known = f"null {key_text(record.key)}" if value is None else value
                    kept = (str(fields.get("txn", "")), record.timestamp)
                    identity = (batch.topic, batch.partition, known, place, kept)
                    batch.sends.append((identity, record.offset - header.base_offset))
                    self._attempts[identity] = self._attempts.get(identity, 0) + 1
                    if identity not in self._open:
                        self._open[identity] = recording.invoke(
                            "send", topic=batch.topic, partition=batch.partition, value=value,
                            key=key_text(record.key), timestamp_ms=record.timestamp, **fields,
                        )  # fmt: skip
        except Undecoded as error:
            recording.unrecorded(f"Produce to {batch.topic}-{batch.partition}: {error}")
        while len(self._acknowledged) > OPEN_SENDS:
            del self._acknowledged[next(iter(self._acknowledged))]
        while len(self._open) > OPEN_SENDS:  # drop the oldest; their outcome stays unknown
            oldest = next(iter(self._open))
            del self._open[oldest], self._attempts[oldest]

    def _answered(
        self, link: Link, sent: dict[tuple[bytes | str, int], Batch], reply: Any | None, *, silent: bool
    ) -> None:
        """Complete sends from a reply; they stay open without one, or after a retriable error."""
        if silent:
            for batch in sent.values():
                for identity, _ in batch.sends:
                    self._close(link, identity, "info", error="acks=0")
            return
        for topic in reply.responses if reply is not None else ():
            for part in topic.partition_responses:
                batch = sent.get((topic.name or topic.topic_id, part.index), Batch("", 0))
                for identity, delta in batch.sends:
                    if part.error_code in {0, DUPLICATE_SEQUENCE}:
                        known = part.error_code == 0 and part.base_offset >= 0
                        self._close(link, identity, "ok", offset=part.base_offset + delta if known else -1)
                    elif part.error_code in REFUSED:
                        kind = "fail" if self._attempts.get(identity) == 1 else "info"
                        self._close(link, identity, kind, error=f"error {part.error_code}")

    def _close(self, link: Link, identity: Identity, kind: str, **fields: Any) -> None:
        operation = self._open.pop(identity, None)
        self._attempts.pop(identity, None)
        if operation is not None:
            topic, partition, _, place, _ = identity
            if kind == "ok" and place is not None:
                self._acknowledged[topic, partition, place] = None
            link.cluster.recording.complete(operation, kind, topic=topic, partition=partition, **fields)
