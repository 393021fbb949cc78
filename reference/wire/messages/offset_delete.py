"""OffsetDelete (key 47): delete some offsets of a group (KIP-496). Never flexible."""

from typing import Annotated

from reference.wire.schema import Int16, Int32, String, ignorable, message, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32 = 0


@struct
class OffsetDeleteRequestTopic:
    name: String = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


@message(api_key=47, versions="0")
class OffsetDeleteRequest:
    """Partitions whose offsets shall go."""

    group_id: String = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic:
    name: String = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


@message(api_key=47, versions="0")
class OffsetDeleteResponse:
    """One error code for each partition."""

    error_code: Int16 = 0
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
