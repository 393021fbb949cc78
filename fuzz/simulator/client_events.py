"""What clients ask brokers and are answered, as events of a history: overheard on their links in the simulator."""

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
Tell = Callable[..., None]
"""Writes an event: process, type, f, and its other fields by name."""


@dataclass(frozen=True, slots=True)
class Operation:
    """How a request is told. Where it is `own`, its client has one at a time, and is the process."""

    f: str
    asked: Callable[[Any], dict[str, Any]]
    errors: Callable[[Any], Iterable[int]]
    told: Callable[[Any], dict[str, Any]] = lambda body: {}
    own: bool = False


class Overheard:
    """One process for each value that is sent and each request that is open, so that none has two at a time."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._asked: dict[tuple[str, int], tuple[str, Any, dict[str, Any]]] = {}
        self._open: dict[str, int] = {}  # of who has one at a time, the request
        self._sent: set[tuple[int, str]] = set()
        self._answered: set[tuple[int, str]] = set()
        self._transaction: dict[str, str] = {}  # which one each producer is in

    def asks(self, source: str, target: str, message: Request) -> None:
        body, number = message.body, message.correlation_id
        if isinstance(body, ProduceRequest):
            self._asked[source, number] = source, body, {}
            self._sends(source, body)
            return
        operation = OPERATIONS.get(type(body))
        if operation is None:
            return
        fields = operation.asked(body) | ({"txn": self._transaction.get(source)} if operation.f == "end_txn" else {})
        process = source if operation.own else f"{source} {number}"
        if process in self._open:  # nobody waits for that answer any more
            _, former, told = self._asked.pop((source, self._open[process]))
            self._tell(process, "info", OPERATIONS[type(former)].f, **told)
        if operation.own:
            self._open[process] = number
        self._asked[source, number] = process, body, fields
        self._tell(process, "invoke", operation.f, node=_node(target), **fields)

    def answers(self, source: str, target: str, message: Response) -> None:
        process, asked, fields = self._asked.pop((target, message.correlation_id), ("", None, {}))
        if asked is None or message.body is None:
            return
        if isinstance(asked, ProduceRequest):
            self._acknowledged(asked, message.body)
            return
        operation = OPERATIONS[type(asked)]
        self._open.pop(process, None)
        if set(operation.errors(message.body)) <= {ErrorCode.NONE}:
            self._tell(process, "ok", operation.f, node=_node(source), **fields | operation.told(message.body))
        else:
            self._tell(process, "info", operation.f, node=_node(source), **fields)

    # -- records -----------------------------------------------------------------------------------

    def _sends(self, source: str, body: ProduceRequest) -> None:
        for partition, value in _values(body):
            if (partition, value) in self._sent:  # it is sent again
                continue
            self._sent.add((partition, value))
            self._tell(
                f"send {value}", "invoke", "send", **_place(partition), value=value, **self._within(source, value)
            )

    def _within(self, source: str, value: str) -> dict[str, Any]:
        """The transaction of a value, `txn <producer> <transaction> <partition>`."""
        if not value.startswith(TRANSACTIONAL):
            return {}
        name = value.rpartition(" ")[0]
        if self._transaction.get(source) != name:
            self._transaction[source] = name
            self._tell(source, "info", "begin_txn", txn=name, value=source)
        return {"txn": name}

    def _acknowledged(self, asked: ProduceRequest, body: Any) -> None:
        answers = {part.index: part for topic in body.responses for part in topic.partition_responses}
        places: dict[int, int] = {}
        for partition, value in _values(asked):
            place = places.get(partition, 0)
            places[partition] = place + 1
            answer = answers[partition]
            if answer.error_code == ErrorCode.NONE and (partition, value) not in self._answered:
                self._answered.add((partition, value))
                offset = answer.base_offset + place if answer.base_offset >= 0 else -1
                self._tell(f"send {value}", "ok", "send", **_place(partition), value=value, offset=offset)


def _node(name: str) -> str:
    return name.removeprefix("broker:")


def _place(partition: int) -> dict[str, Any]:
    return {"topic": TOPIC, "partition": partition}


def _values(body: ProduceRequest) -> Iterator[tuple[int, str]]:
    for topic in body.topic_data:
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
    told = {"member_id": body.member_id, "instance_id": body.group_instance_id}
    return {"group": body.group_id, "generation_id": body.generation_id_or_member_epoch, "value": value, **told}


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
    OffsetCommitRequest: Operation("commit", _commit, _by_partition, own=True),
    SyncGroupRequest: Operation("sync", _member, _whole, _granted),
    InitProducerIdRequest: Operation(
        "init_producer", lambda body: {"value": body.transactional_id}, _whole,
        lambda body: {"producer_id": body.producer_id, "producer_epoch": body.producer_epoch}, own=True,
    ),
    EndTxnRequest: Operation(
        "end_txn", lambda body: {"value": "commit" if body.committed else "abort"}, _whole, own=True
    ),
    MetadataRequest: Operation("metadata", lambda body: {}, lambda body: (), _leaders),
}  # fmt: skip
