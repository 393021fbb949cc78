"""SyncGroup (key 14): the leader hands in the assignment, and each member takes its own.

3 has static members (KIP-345), 5 the protocol that the member expects (KIP-559).
"""

from typing import Annotated

from reference.wire.schema import Bytes, Int16, Int32, String, ignorable, message, since, struct


@struct
class SyncGroupRequestAssignment:
    member_id: String = ""
    assignment: Bytes = b""


@message(api_key=14, versions="0-5", flexible_from=4)
class SyncGroupRequest:
    """Assignments from the leader, none from the others."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    protocol_type: Annotated[String | None, since(5), ignorable] = None
    protocol_name: Annotated[String | None, since(5), ignorable] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


@message(api_key=14, versions="0-5", flexible_from=4)
class SyncGroupResponse:
    """The member's assignment, opaque to the broker."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, since(5), ignorable] = None
    protocol_name: Annotated[String | None, since(5), ignorable] = None
    assignment: Bytes = b""
