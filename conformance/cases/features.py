"""Which levels of its features a cluster has finalised (KIP-584): some clauses hold from a level on."""

from typing import Final

from conformance.broker import Broker
from conformance.failures import Unsupported
from reference.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

FEATURES_SINCE: Final = 3
NAMED: Final = ApiVersionsRequest(client_software_name="highwater", client_software_version="1.0")


def features(broker: Broker, version: int | None = None) -> ApiVersionsResponse:
    """`Unsupported` where ApiVersions tells of none."""
    reply: ApiVersionsResponse = broker.call(
        NAMED, broker.version_of(ApiVersionsRequest, FEATURES_SINCE) if version is None else version
    )
    return reply


def need_feature(broker: Broker, name: str, level: int) -> None:
    """`Unsupported` unless the cluster has finalised this level."""
    found = {each.name: each.max_version_level for each in features(broker).finalized_features}.get(name, 0)
    if found < level:
        raise Unsupported(f"{name} {level} is not finalised, but {found}")
