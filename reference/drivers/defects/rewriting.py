"""How defects change an answer before it is sent: a field of it, or of each partition that it tells."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reference.events import Response
from reference.wire.framing import encode_response
from reference.wire.messages.fetch import FetchResponse
from reference.wire.messages.offset_fetch import OffsetFetchResponse

Change = Callable[[Any], dict[str, Any]]
"""Of a partition: the fields that become others."""


def answered(response: Response, **changed: Any) -> bytes:
    return encode_response(replace(response.body, **changed), response.api_version, response.correlation_id)


def in_partitions(topics: tuple[Any, ...], change: Change, field: str = "partitions") -> tuple[Any, ...]:
    """`field` is what the message calls the partitions of a topic."""

    def changed(topic: Any) -> Any:
        return replace(topic, **{field: tuple(replace(part, **change(part)) for part in getattr(topic, field))})

    return tuple(changed(topic) for topic in topics)


def in_fetched(response: Response, frame: bytes, change: Change) -> bytes:
    if not isinstance(response.body, FetchResponse):
        return frame
    return answered(response, responses=in_partitions(response.body.responses, change))


def in_committed(response: Response, frame: bytes, change: Change) -> bytes:
    """Of an OffsetFetch for one group, or for several."""
    body = response.body
    if not isinstance(body, OffsetFetchResponse):
        return frame
    groups = tuple(replace(each, topics=in_partitions(each.topics, change)) for each in body.groups)
    return answered(response, topics=in_partitions(body.topics, change), groups=groups)
