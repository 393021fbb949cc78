"""Connections to the target for probes, replays and sequences, and what the target advertises."""

from typing import Any, Final

from highwater.errors import UsageError
from highwater.fuzz.wire.generate.requests import CLIENT_ID, HARMFUL
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import FrameSizeError, WireError
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.registry import APIS, Api

ALIVE_TIMEOUT_S: Final = 5.0
HINT: Final = "is it a Kafka broker, and running?"


def connect(address: str, timeout_s: float = ALIVE_TIMEOUT_S) -> Connection:
    """Return a connection to the target; OSError when it accepts none."""
    return Connection(address, timeout_s=timeout_s, client_id=CLIENT_ID)


def why_dead(address: str) -> str | None:
    """Return None if the target answers ApiVersions on a fresh connection, otherwise what it did instead."""
    try:
        with connect(address) as connection:
            connection.exchange(ApiVersionsRequest(), 0)
    except ReplyTimeoutError:
        return f"is silent for {ALIVE_TIMEOUT_S:.0f} s on a fresh connection"
    except ConnectionClosedError:
        return "closes a fresh connection at once"
    except WireError as error:
        return f"answers ApiVersions with a malformed response ({error})"
    except OSError as error:
        return f"refuses connections ({error.strerror or error})"
    return None


Served = list[tuple[Api, int, int]]
"""An API with its first and last version."""


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
