"""Who gets a request, and which errors of a reply mean that it must be sent again."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Final

from highwater.conformance.cases.fields.world import World
from highwater.conformance.cases.support.transactions import coordinator_of
from highwater.conformance.client.broker import Broker
from highwater.reference.wire.errors import COORDINATOR_NOT_READY, TRANSACTION_NOT_READY, ErrorCode

READY_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """Finds the broker for a request. A reply with one of the `retried` errors, or with `alone` only, is not final.

    With `opens`, each attempt has a connection of its own.
    """

    broker: Callable[[World, Any], Broker]
    retried: frozenset[int] = frozenset()
    alone: frozenset[int] = frozenset()
    opens: bool = False


def _group_coordinator(world: World, request: Any) -> Broker:
    return world.cluster.coordinator(request.group_id) if request.group_id else world.cluster.connect()


def _transaction_coordinator(world: World, request: Any) -> Broker:
    name = transactional_id(request)
    return world.cluster.connect(coordinator_of(world.cluster, name) if name else None)


RECEIVERS: Final[Mapping[str, Receiver]] = {
    "any broker": Receiver(lambda world, request: world.broker),
    "controller": Receiver(lambda world, request: world.controller),
    "leader": Receiver(lambda world, request: world.leader),
    "coordinator": Receiver(lambda world, request: world.coordinator),
    "coordinator of offsets": Receiver(lambda world, request: world.coordinator, TRANSACTION_NOT_READY),
    "coordinator of transactions": Receiver(lambda world, request: world.opened.coordinator, TRANSACTION_NOT_READY),
    "coordinator of the group": Receiver(_group_coordinator, COORDINATOR_NOT_READY, opens=True),
    # A broker returns NOT_COORDINATOR for a moment after FindCoordinator has named it.
    "coordinator of the transaction": Receiver(
        _transaction_coordinator, TRANSACTION_NOT_READY, frozenset({ErrorCode.NOT_COORDINATOR}), opens=True
    ),
}


def send(world: World, to: str, request: Any, version: int, timeout_s: float | None = None) -> Any:
    """Send a request in a version until the reply is final, and return the reply."""
    if to in SENDERS:
        return SENDERS[to](world, request, version)
    return _patiently(world, to, RECEIVERS[to], request, version, timeout_s)


def _patiently(
    world: World, to: str, receiver: Receiver, request: Any, version: int, timeout_s: float | None = None
) -> Any:
    def once() -> Any:
        with ExitStack() as opened:
            broker = receiver.broker(world, request)
            if receiver.opens:
                opened.enter_context(broker)
            reply = broker.call(request, version, timeout_s)
        errors = set(error_codes(reply)) if receiver.retried else set()
        return None if errors & receiver.retried or (errors and errors == receiver.alone) else reply

    return world.cluster.eventually(f"the {to} to be ready", once, READY_S)


def join(world: World, request: Any, version: int) -> Any:
    """Send JoinGroup, and again with the member id that the broker gives to a new member (KIP-394).

    If that id is unknown, begin again: Apache Kafka deletes an empty group without offsets at its next check.
    """

    def once() -> Any:
        reply = send(world, "coordinator of the group", request, version)
        if reply.error_code != ErrorCode.MEMBER_ID_REQUIRED or request.member_id:
            return reply
        reply = send(world, "coordinator of the group", replace(request, member_id=reply.member_id), version)
        return None if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID else reply

    return world.cluster.eventually("the new member to be known", once)


def every_broker(world: World, request: Any, version: int) -> list[Any]:
    """Send a request to every broker and return the replies."""
    addresses = world.cluster.target.addresses.values()
    receivers = [Receiver(partial(_broker_at, address), TRANSACTION_NOT_READY, opens=True) for address in addresses]
    return [_patiently(world, "broker", each, request, version) for each in receivers]


def _broker_at(address: str, world: World, request: Any) -> Broker:
    return world.cluster.connect(address)


SENDERS: Final[Mapping[str, Callable[[World, Any, int], Any]]] = {"new members": join, "every broker": every_broker}


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
