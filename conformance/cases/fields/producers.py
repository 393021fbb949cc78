"""Transactional producers for rows about transactions.

A row that ends or changes a transaction has a producer of its own. A request is sent to the coordinator of its
transactional id, and again while that is not ready or still completes a transaction.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Final

from highwater.conformance.broker import Broker, Topic, expect
from highwater.conformance.cases.fields.partitions import INT16_MIN, INT64_MIN, PARTITIONS
from highwater.conformance.cases.fields.table import Call, changed
from highwater.conformance.cases.support.producers import NOT_READY
from highwater.conformance.cases.support.transactions import Transactional, coordinator_of, describe_transaction
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import increment
from highwater.reference.wire.errors import ErrorCode

FENCED, OLD_FENCED, NO_MAPPING = (
    ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING
)  # fmt: skip
OTHER_ID = 10**15
"""A producer id that no broker has given out."""


@dataclass
class World:
    """A topic of three partitions that one broker leads: the first is for the row, the others for ordinary items.

    It is created for the first row that needs it.
    """

    cluster: Cluster
    broker: Broker = field(init=False)
    others: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        self.broker, self.others = self.cluster.connect(), itertools.cycle([1, 2])

    @cached_property
    def topic(self) -> Topic:
        return self.cluster.create_topic(partitions=PARTITIONS, assignment=[min(self.cluster.target.addresses)])

    @cached_property
    def leader(self) -> Broker:
        return self.cluster.leader(self.topic)

    def part(self, partition: int) -> Topic:
        return replace(self.topic, partition=partition)

    def producer(self) -> Transactional:
        """Return a new producer without a transaction."""
        return Transactional.initialize(self.cluster)

    def open_producer(self) -> Transactional:
        """Return a new producer whose transaction contains the last partition."""
        producer = self.producer()
        producer.begin(self.part(PARTITIONS - 1))
        return producer

    def call(self, request: Any, version: int) -> Any:
        """Send a request to the coordinator of its transactional id, until that is ready, and return the reply.

        A broker returns NOT_COORDINATOR for a moment after FindCoordinator has named it.
        """
        name = transactional_id(request)

        def once() -> Any:
            address = coordinator_of(self.cluster, name) if name else None
            reply = self.patiently(self.cluster.connect(address), request, version)
            return None if set(error_codes(reply)) == {ErrorCode.NOT_COORDINATOR} else reply

        return self.cluster.eventually("the coordinator", once, 15.0)

    def patiently(self, broker: Broker, request: Any, version: int) -> Any:
        """Send a request until the broker is ready for it, and return the reply."""

        def once() -> Any:
            reply = broker.call(request, version)
            return None if any(error in NOT_READY for error in error_codes(reply)) else reply

        return self.cluster.eventually("the coordinator to be ready", once, 15.0)


def transactional_id(request: Any) -> str | None:
    """Return the transactional id of a request, or the first of several in it."""
    many = [each.transactional_id for each in getattr(request, "transactions", ()) if each.transactional_id]
    many += getattr(request, "transactional_ids", ())
    single = getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", None)
    return many[0] if many else single


def error_codes(message: Any) -> Iterator[int]:
    """Yield every error code in a reply."""
    for each in fields(message):
        value = getattr(message, each.name)
        if each.name.endswith("error_code"):
            yield value
        for inner in value if isinstance(value, tuple) else ():
            if is_dataclass(inner):
                yield from error_codes(inner)


def read_error(reply: Any) -> int:
    return int(reply.error_code)


def send_call(world: World, request: Any, version: int) -> Any:
    return world.call(request, version)


def fenced(row: Call, newer: int, error: Any = lambda code: code) -> list[Call]:
    """Return a row with PRODUCER_FENCED, and one for the versions before `newer`, which have another error (KIP-588).

    `error` returns the answer of the row for an error code.
    """
    first, last = row.versions
    old = replace(row, answer=error(OLD_FENCED), versions=(first, newer - 1))
    return [old, replace(row, answer=error(FENCED), versions=(newer, last))]


def expect_state(world: World, name: str, state: str, epoch: int) -> None:
    """Check state and producer epoch of a transactional id."""
    found = describe_transaction(Transactional(world.cluster, name))
    expect("state and epoch of the transaction", (state, epoch), (found.transaction_state, found.producer_epoch))


def expect_state_if_known(world: World, name: str, state: str) -> None:
    """Check the state of a new producer, unless a row has changed its transactional id."""
    if name == name.strip().lower() != "":
        expect_state(world, name, state, 0)


def identity(producer: Transactional, fields: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """Return the fields that name a producer and others, with changes as in `changed`."""
    own = {"transactional_id": producer.id, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    return changed(own | others, fields)


WRONG_EPOCHS: Final[list[tuple[str, Any]]] = [
    ("producer_epoch one too large", increment),
    ("producer_epoch largest", 2**15 - 1),
    ("producer_epoch -1", -1),
    ("producer_epoch smallest", INT16_MIN),
]
WRONG_IDS: Final[list[tuple[str, dict[str, Any], ErrorCode]]] = [
    ("transactional_id empty", {"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
    ("transactional_id in upper case", {"transactional_id": str.upper}, NO_MAPPING),
    ("transactional_id of no producer", {"transactional_id": lambda name: name + " "}, NO_MAPPING),
    ("producer_id one too large", {"producer_id": increment}, NO_MAPPING),
    ("producer_id of no producer", {"producer_id": OTHER_ID}, NO_MAPPING),
    ("producer_id -1", {"producer_id": -1}, NO_MAPPING),
    ("producer_id smallest", {"producer_id": INT64_MIN}, NO_MAPPING),
]
"""Name of a row, changed fields, and the error of the transaction coordinator."""
