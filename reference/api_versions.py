"""The supported API keys and versions, and the ApiVersions handler (KIP-35, KIP-511, KIP-584)."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from highwater.reference.effects import Request
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from highwater.reference.wire.registry import APIS

API_VERSIONS: Final = 18
SOFTWARE_NAME_SINCE: Final = 3
MIN_FEATURE_0_SINCE: Final = 4
"""Older clients refuse a feature whose least version is 0 (KAFKA-17011)."""
SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")

TRANSACTION_VERSION: Final = "transaction.version"
"""The feature by which clients choose the transaction protocol (KIP-584, KIP-890)."""
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
"""Level 1: the controller stores which replicas outside the ISR may be elected (KIP-966).

The controller does so if leaders send it their ISR changes (`isr_update = alter_partition`).
"""

GROUP_VERSION: Final = "group.version"
"""Level 1: the broker serves consumer groups of KIP-848."""

Handler = Callable[[Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ServedApi:
    """A handler with the versions that it supports; `inter_broker` marks requests between brokers."""

    handler: Handler
    min_version: int
    max_version: int
    inter_broker: bool = False

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


def by_key(served: Mapping[str, ServedApi]) -> dict[int, ServedApi]:
    """Return handlers by API key, in order; raises KeyError for a name that is no API."""
    keys = {api.name: api.key for api in APIS.values()}
    return {keys[name]: served[name] for name in sorted(served, key=keys.__getitem__)}


class ApiVersionsHandler:
    def __init__(self, served: dict[int, ServedApi], features: Mapping[str, int]) -> None:
        """`features` has the level of each feature; one of level 0 is not announced."""
        self._served = served
        self._features = {name: level for name, level in features.items() if level}

    async def api_versions(self, request: Request) -> ApiVersionsResponse:
        """Return the supported versions; to an unknown version, the range of this key only, in version 0 (KIP-511)."""
        body: ApiVersionsRequest | None = request.body
        if body is None:
            return self._response(0, ErrorCode.UNSUPPORTED_VERSION, {API_VERSIONS: self._served[API_VERSIONS]})
        if request.api_version >= SOFTWARE_NAME_SINCE:
            names = (body.client_software_name, body.client_software_version)
            if not all(SOFTWARE_NAME.fullmatch(name) for name in names):
                return self._response(request.api_version, ErrorCode.INVALID_REQUEST, {})
        return self._response(request.api_version, ErrorCode.NONE, self._served)

    def _response(self, version: int, error: ErrorCode, served: dict[int, ServedApi]) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            error_code=error,
            api_keys=tuple(
                ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
                for key, api in sorted(served.items())
            ),
            supported_features=tuple(
                SupportedFeatureKey(name=name, min_version=0, max_version=level)
                for name, level in (self._features.items() if version >= MIN_FEATURE_0_SINCE else ())
            ),
            finalized_features_epoch=0,
            finalized_features=tuple(
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in self._features.items()
            ),
        )
