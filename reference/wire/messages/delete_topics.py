"""DeleteTopics (key 20): delete topics, by name or since 6 by id (KIP-516)."""

from typing import Annotated

from reference.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    String,
    Uuid,
    ignorable,
    message,
    nullable,
    since,
    struct,
    until,
)


@struct
class DeleteTopicState:
    name: String | None = None
    topic_id: Uuid = ZERO_UUID


@message(api_key=20, versions="0-6", flexible_from=4)
class DeleteTopicsRequest:
    """`topic_names` up to 5, `topics` by name or id since 6."""

    topics: Annotated[tuple[DeleteTopicState, ...], since(6)] = ()
    topic_names: Annotated[tuple[String, ...], until(5), ignorable] = ()
    timeout_ms: Int32 = 0


@struct
class DeletableTopicResult:
    name: Annotated[String | None, nullable(since=6)] = ""
    topic_id: Annotated[Uuid, since(6), ignorable] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(5), ignorable] = None


@message(api_key=20, versions="0-6", flexible_from=4)
class DeleteTopicsResponse:
    """What came to be of each topic."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    responses: tuple[DeletableTopicResult, ...] = ()
