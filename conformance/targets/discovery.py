"""Which brokers a cluster has, asked by the protocol, and whether all of them are there."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from highwater.conformance.connection import OPEN, Access, Connection
from highwater.conformance.failures import TargetFailure
from highwater.errors import UsageError
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic

METADATA_VERSION = 1
COORDINATOR_VERSION = 0
OFFSETS = "__consumer_offsets"
TIMEOUT_S = 3.0
READY_TIMEOUT_S = 60.0
POLL_S = 0.05


def brokers_of(address: str, access: Access = OPEN) -> dict[int, str]:
    """Addresses by broker id, as `address` tells them. Raises TargetFailure."""
    with Connection(address, timeout_s=TIMEOUT_S, access=access) as connection:
        reply = connection.exchange(MetadataRequest(topics=()), METADATA_VERSION)
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in reply.brokers}


def is_whole(address: str, brokers: int, access: Access = OPEN) -> bool:
    """This broker lists so many."""
    try:
        return len(brokers_of(address, access)) == brokers
    except TargetFailure:
        return False


def wait_until_whole(
    addresses: Mapping[int, str], check: Callable[[], None] = lambda: None, access: Access = OPEN
) -> None:
    """Until every broker lists every broker: a topic made earlier would not be spread over all.

    `check` may say that it is in vain. UsageError after a minute.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    for address in addresses.values():
        while not is_whole(address, len(addresses), access):
            check()
            if time.monotonic() > deadline:
                raise UsageError(f"no cluster of {len(addresses)} after {READY_TIMEOUT_S:g} s", where=address)
            time.sleep(POLL_S)


def wait_until_coordinated(addresses: Mapping[int, str]) -> None:
    """Until groups have a coordinator whose topic has all its replicas: the first to ask is asked to wait.

    UsageError after a minute.
    """
    deadline, first = time.monotonic() + READY_TIMEOUT_S, next(iter(addresses.values()))
    while not all(_has_offsets(each) for each in addresses.values()):
        with suppress(TargetFailure), Connection(first, timeout_s=TIMEOUT_S) as connection:
            connection.exchange(FindCoordinatorRequest(key="highwater"), COORDINATOR_VERSION)
        if time.monotonic() > deadline:
            raise UsageError(f"no coordinator of groups after {READY_TIMEOUT_S:g} s", where=first)
        time.sleep(POLL_S)


def _has_offsets(address: str) -> bool:
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=OFFSETS),))
    with suppress(TargetFailure), Connection(address, timeout_s=TIMEOUT_S) as connection:
        (topic,) = connection.exchange(asked, METADATA_VERSION).topics
        parts = topic.partitions
        return bool(parts) and all(
            part.leader_id >= 0 and set(part.isr_nodes) == set(part.replica_nodes) for part in parts
        )
    return False


def restart_dead(
    addresses: Mapping[int, str], kill: Callable[[int], None], start: Callable[[int], None], access: Access = OPEN
) -> None:
    """Kill what hangs, start what is down, and wait until all is well."""
    for node, address in addresses.items():
        try:
            brokers_of(address, access)
        except TargetFailure:
            kill(node)
            start(node)
    wait_until_whole(addresses, access=access)
