"""What this broker speaks: the table of keys, versions and handlers, and ApiVersions itself."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from reference.events import Request
from reference.wire.errors import ErrorCode
from reference.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API_VERSIONS: Final = 18
SOFTWARE_NAME_SINCE: Final = 3
SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")

TRANSACTION_VERSION: Final = "transaction.version"

Handler = Callable[[Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Served:
    """A key with the versions that are served, and advertised unless brokers use it among themselves."""

    handler: Handler
    min_version: int
    max_version: int
    inter_broker: bool = False

    def answers(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


class ApiVersionsHandler:
    def __init__(self, served: dict[int, Served], transaction_version: int) -> None:
        self._served, self._transaction_version = served, transaction_version

    async def api_versions(self, request: Request) -> ApiVersionsResponse:
        """An unknown version is answered in version 0, with the range of this key only (KIP-511)."""
        body: ApiVersionsRequest | None = request.body
        if body is None:
            return self._response(ErrorCode.UNSUPPORTED_VERSION, {API_VERSIONS: self._served[API_VERSIONS]})
        if request.api_version >= SOFTWARE_NAME_SINCE:
            names = (body.client_software_name, body.client_software_version)
            if not all(SOFTWARE_NAME.fullmatch(name) for name in names):
                return self._response(ErrorCode.INVALID_REQUEST, {})
        return self._response(ErrorCode.NONE, self._served)

    def _response(self, error: ErrorCode, served: dict[int, Served]) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            error_code=error,
            api_keys=tuple(
                ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
                for key, api in sorted(served.items())
            ),
            # What clients go by when they choose a transaction protocol (KIP-584, KIP-890).
            supported_features=(
                SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=self._transaction_version),
            ),
            finalized_features_epoch=0,
            finalized_features=(
                FinalizedFeatureKey(
                    name=TRANSACTION_VERSION,
                    min_version_level=self._transaction_version,
                    max_version_level=self._transaction_version,
                ),
            ),
        )
