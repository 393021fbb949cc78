"""Turn the requests and responses on the links of simulated clients into events of a history."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from highwater.fuzz.simulator.cluster import TOPIC
from highwater.reference.clients.subscriptions import unpack_assignment
from highwater.reference.effects import Request, Response
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest
from highwater.reference.wire.messages.groups import SyncGroupRequest
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import EndTxnRequest, InitProducerIdRequest
from highwater.reference.wire.records import batch_headers, decode_records

TRANSACTIONAL: Final = "txn"
WriteEvent = Callable[..., None]
"""Writes an event: process, type, f, and its other fields by name."""


@dataclass(frozen=True, slots=True)
class Operation:
    """How a request becomes an operation `f`: its fields, the errors in the response, the fields of the response.

    With `sequential` the client has one such request at a time, and the client is the process of the operation.
    Otherwise each request is a separate process.
    """

    f: str
    request_fields: Callable[[Any], dict[str, Any]]
    errors: Callable[[Any], Iterable[int]]
    response_fields: Callable[[Any], dict[str, Any]] = lambda body: {}
    sequential: bool = False


class LinkObserver:
    """Writes an event for each request and response; each sent value and each request is one process.

    So no process has two operations at a time, as the history format requires.
    """

    def __init__(self, write_event: WriteEvent) -> None:
        self._write_event = write_event
        self._requests: dict[tuple[str, int], tuple[str, Any, dict[str, Any]]] = {}
        self._open: dict[str, int] = {}  # correlation id of the open request of a sequential process
        self._sent: set[tuple[int, str]] = set()
        self._answered: set[tuple[int, str]] = set()
        self._transaction: dict[str, str] = {}  # name of the current transaction of each producer

    def on_request(self, source: str, target: str, message: Request) -> None:
        """Write the `invoke` events of a request that a client sends."""
        body, number = message.body, message.correlation_id
        if isinstance(body, ProduceRequest):
            self._requests[source, number] = source, body, {}
            self._on_values_sent(source, body)
            return
        operation = OPERATIONS.get(type(body))
        if operation is None:
            return
        fields = operation.request_fields(body) | (
            {"txn": self._transaction.get(source)} if operation.f == "end_txn" else {}
        )
        process = source if operation.sequential else f"{source} {number}"
        if process in self._open:  # the client no longer waits for the former response
            _, former, former_fields = self._requests.pop((source, self._open[process]))
            self._write_event(process, "info", OPERATIONS[type(former)].f, **former_fields)
        if operation.sequential:
            self._open[process] = number
        self._requests[source, number] = process, body, fields
        self._write_event(process, "invoke", operation.f, node=_node(target), **fields)

    def on_response(self, source: str, target: str, message: Response) -> None:
        """Write the `ok` or `info` events of a response that a client receives."""
        process, request, fields = self._requests.pop((target, message.correlation_id), ("", None, {}))
        if request is None or message.body is None:
            return
        if isinstance(request, ProduceRequest):
            self._on_acknowledged(request, message.body)
            return
        operation = OPERATIONS[type(request)]
        self._open.pop(process, None)
        if set(operation.errors(message.body)) <= {ErrorCode.NONE}:
            self._write_event(
                process, "ok", operation.f, node=_node(source), **fields | operation.response_fields(message.body)
            )
        else:
            self._write_event(process, "info", operation.f, node=_node(source), **fields)

    def crashed(self, client: str) -> None:
        """Forget the open requests of a client: its next life numbers its requests from the start again."""
        for key in [key for key in self._requests if key[0] == client]:
            process, request, fields = self._requests.pop(key)
            if process in self._open:
                del self._open[process]
                self._write_event(process, "info", OPERATIONS[type(request)].f, **fields)

    # -- records -----------------------------------------------------------------------------------

    def _on_values_sent(self, source: str, body: ProduceRequest) -> None:
        for partition, value in _values(body):
            if (partition, value) in self._sent:  # a retry of the producer
                continue
            self._sent.add((partition, value))
            self._write_event(
                f"send {value}",
                "invoke",
                "send",
                **_place(partition),
                value=value,
                **self._transaction_field(source, value),
            )

    def _transaction_field(self, source: str, value: str) -> dict[str, Any]:
        """Return the transaction in `txn <producer> <transaction> <partition>` as a field, {} for other values."""
        if not value.startswith(TRANSACTIONAL):
            return {}
        name = value.rpartition(" ")[0]
        if self._transaction.get(source) != name:
            self._transaction[source] = name
            self._write_event(source, "info", "begin_txn", txn=name, value=source)
        return {"txn": name}

    def _on_acknowledged(self, request: ProduceRequest, body: Any) -> None:
        answers = {part.index: part for topic in body.responses for part in topic.partition_responses}
        places: dict[int, int] = {}
        for partition, value in _values(request):
            place = places.get(partition, 0)
            places[partition] = place + 1
            answer = answers[partition]
            if answer.error_code == ErrorCode.NONE and (partition, value) not in self._answered:
                self._answered.add((partition, value))
                offset = answer.base_offset + place if answer.base_offset >= 0 else -1
                self._write_event(f"send {value}", "ok", "send", **_place(partition), value=value, offset=offset)


def _node(name: str) -> str:
    return name.removeprefix("broker:")


def _place(partition: int) -> dict[str, Any]:
    return {"topic": TOPIC, "partition": partition}


def _values(body: ProduceRequest) -> Iterator[tuple[int, str]]:
    """Yield partition and value of each record for `TOPIC`."""
    for topic in (topic for topic in body.topic_data if topic.name == TOPIC):
        for part in topic.partition_data:
            for position, _ in batch_headers(data := part.records or b""):
                for record in decode_records(data, position)[1]:
                    yield part.index, (record.value or b"").decode()


def _member(body: Any) -> dict[str, Any]:
    return {
        "group": body.group_id, "generation_id": body.generation_id, "member_id": body.member_id,
        "instance_id": body.group_instance_id,
    }  # fmt: skip


def _commit(body: OffsetCommitRequest) -> dict[str, Any]:
    value = {
        f"{topic.name}-{part.partition_index}": part.committed_offset
        for topic in body.topics
        for part in topic.partitions
    }
    member = {"member_id": body.member_id, "instance_id": body.group_instance_id}
    return {"group": body.group_id, "generation_id": body.generation_id_or_member_epoch, "value": value, **member}


def _granted(body: Any) -> dict[str, Any]:
    return {"value": [f"{topic}-{number}" for topic, number in sorted(unpack_assignment(body.assignment))]}


def _leaders(body: Any) -> dict[str, Any]:
    return {"value": {
        f"{TOPIC}-{part.partition_index}": [part.leader_id, part.leader_epoch]
        for topic in body.topics if topic.name == TOPIC for part in topic.partitions if part.leader_epoch >= 0
    }}  # fmt: skip


def _whole(body: Any) -> Iterable[int]:
    return (body.error_code,)


def _by_partition(body: Any) -> Iterable[int]:
    return (part.error_code for topic in body.topics for part in topic.partitions)


OPERATIONS: Final[dict[type, Operation]] = {
    OffsetCommitRequest: Operation("commit", _commit, _by_partition, sequential=True),
    SyncGroupRequest: Operation("sync", _member, _whole, _granted),
    InitProducerIdRequest: Operation(
        "init_producer", lambda body: {"value": body.transactional_id}, _whole,
        lambda body: {"producer_id": body.producer_id, "producer_epoch": body.producer_epoch}, sequential=True,
    ),
    EndTxnRequest: Operation(
        "end_txn", lambda body: {"value": "commit" if body.committed else "abort"}, _whole, sequential=True
    ),
    MetadataRequest: Operation("metadata", lambda body: {}, lambda body: (), _leaders),
}  # fmt: skip
