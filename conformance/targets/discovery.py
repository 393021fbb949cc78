"""Which brokers a cluster has, asked by the protocol."""

from conformance.connection import Connection
from reference.wire.messages.metadata import MetadataRequest

METADATA_VERSION = 1
TIMEOUT_S = 3.0


def brokers_of(address: str) -> dict[int, str]:
    """Addresses by broker id, as `address` tells them. Raises TargetFailure."""
    with Connection(address, timeout_s=TIMEOUT_S) as connection:
        reply = connection.exchange(MetadataRequest(topics=()), METADATA_VERSION)
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in reply.brokers}
