"""JoinGroup (key 11): enter a group and wait for the rebalance.

1 has its own rebalance timeout (KIP-62), 4 may answer with the member id to come back with (KIP-394), 5 static members
(KIP-345), 7 the protocol type, 8 a reason (KIP-800), 9 may spare a returning static leader the assignment (KIP-814).
"""

from typing import Annotated

from reference.wire.schema import Bool, Bytes, Int16, Int32, String, ignorable, message, nullable, since, struct


@struct
class JoinGroupRequestProtocol:
    name: String = ""
    metadata: Bytes = b""


@message(api_key=11, versions="0-9", flexible_from=6)
class JoinGroupRequest:
    """A member with the protocols it could follow, the preferred one first."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, since(1), ignorable] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5)] = None
    protocol_type: String = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: Annotated[String | None, since(8), ignorable] = None


@struct
class JoinGroupResponseMember:
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5), ignorable] = None
    metadata: Bytes = b""


@message(api_key=11, versions="0-9", flexible_from=6)
class JoinGroupResponse:
    """The new generation; the members only for its leader."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, since(7), ignorable] = None
    protocol_name: Annotated[String | None, nullable(since=7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: String = ""
    members: tuple[JoinGroupResponseMember, ...] = ()
