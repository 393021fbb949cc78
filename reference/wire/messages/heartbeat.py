"""Heartbeat (key 12): stay in a group, and hear of rebalances. 3 has static members (KIP-345)."""

from typing import Annotated

from reference.wire.schema import Int16, Int32, String, ignorable, message, since


@message(api_key=12, versions="0-4", flexible_from=4)
class HeartbeatRequest:
    """A sign of life in a generation."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None


@message(api_key=12, versions="0-4", flexible_from=4)
class HeartbeatResponse:
    """Whether the member must join again."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
