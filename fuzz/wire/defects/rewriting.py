"""Helpers for defects that change fields of a response, or of every partition in it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from highwater.reference.effects import Response
from highwater.reference.wire.framing import encode_response
from highwater.reference.wire.messages.committed_offsets import OffsetFetchResponse
from highwater.reference.wire.messages.fetch import FetchResponse

Change = Callable[[Any], dict[str, Any]]
"""Takes a partition; returns the changed fields."""


def encode_changed(response: Response, **changed: Any) -> bytes:
    return encode_response(replace(response.body, **changed), response.api_version, response.correlation_id)


def map_partitions(topics: tuple[Any, ...], change: Change, field: str = "partitions") -> tuple[Any, ...]:
    """Apply a change to every partition; `field` is the name of the partitions field of a topic."""

    def changed(topic: Any) -> Any:
        return replace(topic, **{field: tuple(replace(part, **change(part)) for part in getattr(topic, field))})

    return tuple(changed(topic) for topic in topics)


def map_fetched(response: Response, frame: bytes, change: Change) -> bytes:
    if not isinstance(response.body, FetchResponse):
        return frame
    return encode_changed(response, responses=map_partitions(response.body.responses, change))


def map_committed(response: Response, frame: bytes, change: Change) -> bytes:
    """Apply a change to every partition of an OffsetFetch response, for one group or for several."""
    body = response.body
    if not isinstance(body, OffsetFetchResponse):
        return frame
    groups = tuple(replace(group, topics=map_partitions(group.topics, change)) for group in body.groups)
    return encode_changed(response, topics=map_partitions(body.topics, change), groups=groups)
