"""Connections to the target for probes and replays, and what the target advertises."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from highwater.errors import UsageError
from highwater.fuzz.wire.generate.requests import CLIENT_ID, HARMFUL
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import FrameSizeError, WireError
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.registry import APIS, Api, api_of

ALIVE_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.05
SILENT: Final = "is silent"
"""How `why_dead` begins if the target accepts connections and answers none."""
HINT: Final = "is it a Kafka broker, and running?"


def connect(address: str, timeout_s: float = ALIVE_TIMEOUT_S) -> Connection:
    """Return a connection to the target; OSError when it accepts none."""
    return Connection(address, timeout_s=timeout_s, client_id=CLIENT_ID)


def _never() -> bool:
    return False


def why_dead(address: str, gives_up: Callable[[], bool] = _never) -> str | None:
    """Return None if the target answers ApiVersions on a fresh connection, otherwise what it did instead.

    Also None as soon as `gives_up` returns True while the target is silent.
    """
    try:
        with connect(address) as connection:
            if not _is_answered(connection, gives_up):
                return f"{SILENT} for {ALIVE_TIMEOUT_S:.0f} s on a fresh connection"
    except ReplyTimeoutError:
        return f"{SILENT} and does not read from a fresh connection"
    except ConnectionClosedError:
        return "closes a fresh connection at once"
    except WireError as error:
        return f"answers ApiVersions with a malformed response ({error})"
    except OSError as error:
        return f"refuses connections ({error.strerror or error})"
    return None


def _is_answered(connection: Connection, gives_up: Callable[[], bool]) -> bool:
    """Return False if ALIVE_TIMEOUT_S pass without a response, True if it arrives or `gives_up` returns True."""
    request = ApiVersionsRequest()
    correlation_id, end = connection.send(request, 0), time.monotonic() + ALIVE_TIMEOUT_S
    while time.monotonic() < end:
        with suppress(ReplyTimeoutError):
            connection.receive(api_of(type(request)), 0, correlation_id, POLL_S)
            return True
        if gives_up():
            return True
    return False


Served = list[tuple[Api, int, int]]
"""An API with its first and last version."""
VersionRanges = Mapping[int, tuple[int, int]]
"""First and last version by API key."""


def version_ranges(served: Served) -> VersionRanges:
    return {api.key: (first, last) for api, first, last in served}


def advertised(address: str) -> Served:
    """Return the APIs that both the target and our table support, except HARMFUL ones.

    Raises UsageError if the target does not answer, or no API is left.
    """
    found = []
    for api_range in _api_versions(address):
        api = APIS.get(api_range.api_key)
        if api is not None and api_range.api_key not in HARMFUL:
            first, last = max(api_range.min_version, api.min_version), min(api_range.max_version, api.max_version)
            if first <= last:
                found.append((api, first, last))
    if not found:
        raise UsageError("the target advertises no API version that the fuzzer knows", where=address, hint=HINT)
    return found


def unknown_versions(address: str) -> set[tuple[int, int]]:
    """Return API keys and versions that the target supports but our table lacks; their responses cannot be decoded."""
    return {
        (api_range.api_key, version)
        for api_range in _api_versions(address)
        if api_range.api_key in APIS
        for version in range(APIS[api_range.api_key].max_version + 1, api_range.max_version + 1)
    }


def _api_versions(address: str) -> Any:
    try:
        with connect(address) as connection:
            return connection.exchange(ApiVersionsRequest(), 0).api_keys
    except (OSError, ConnectionClosedError, ReplyTimeoutError, FrameSizeError) as error:
        what = why_dead(address) or f"does not answer ApiVersions ({error})"
        raise UsageError(f"the target {what}", where=address, hint=HINT) from error
    except WireError as error:
        raise UsageError(f"the target's ApiVersions does not decode ({error})", where=address, hint=HINT) from error
