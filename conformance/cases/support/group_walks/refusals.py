"""Requests about a classic group that are refused, or that change nothing."""

from typing import Final

from highwater.conformance.cases.support.group_walks.members import INSTANCES_SINCE, ClassicWalk, WalkMember
from highwater.conformance.cases.support.members import PROTOCOL_TYPE
from highwater.conformance.models.groups import GroupClient
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolSubscription, encode_subscription
from highwater.reference.wire.messages.groups import JoinGroupRequest

INCONSISTENT: Final = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def subscription(text: bytes) -> bytes:
    """Return metadata that differs by its user data: Apache Kafka parses it (GRP-53)."""
    return encode_subscription(ConsumerProtocolSubscription(user_data=text))


FIRST: Final = (("range", subscription(b"first range")), ("sticky", subscription(b"first sticky")))
SECOND: Final = (("sticky", subscription(b"second sticky")), ("other", b""))
THIRD: Final = (("sticky", subscription(b"third sticky")),)
FOURTH: Final = (("sticky", subscription(b"fourth sticky")), ("range", subscription(b"fourth range")))


def check_refusals(walk: ClassicWalk, *members: WalkMember, stranger: GroupClient) -> None:
    """Send requests that are refused, or that change nothing, and check that the group is as before.

    They come from members and from a member of another group, with other generations and other instance ids.
    """
    model, ids = walk.model, [member.member_id for member in members]
    generations = [model.generation + step for step in (-1, 0, 1)]
    clients = [GroupClient(each, generation) for each in (*ids, "", "unknown") for generation in generations]
    clients += [GroupClient(stranger.member_id, stranger.generation), GroupClient("", -1)]
    named = [
        GroupClient(each, model.generation, instance) for each in (*ids, "") for instance in ("static", "none", "")
    ]
    some = walk.cluster.draws.some
    walk.check_heartbeats(*some([*clients, *named]))
    walk.check_syncs(*some(clients))
    limits = [walk.cluster.setting(f"group_{end}_session_timeout_ms") for end in ("min", "max")]
    unknown = GroupClient("unknown")
    walk.check_refused_joins(
        (unknown, PROTOCOL_TYPE, FIRST + SECOND, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (unknown, PROTOCOL_TYPE, FIRST, limits[0] - 1, ErrorCode.INVALID_SESSION_TIMEOUT),
        (GroupClient(), PROTOCOL_TYPE, FIRST, limits[1] + 1, ErrorCode.INVALID_SESSION_TIMEOUT),
        (GroupClient(), PROTOCOL_TYPE, (), 0, INCONSISTENT),
        (GroupClient(), "", FIRST, 0, INCONSISTENT),
    )
    if model.members:
        walk.check_refused_joins(
            (GroupClient(), "connect", FIRST + SECOND, 0, INCONSISTENT),
            (GroupClient(ids[0]), PROTOCOL_TYPE, (("unshared", b"x"),), 0, INCONSISTENT),
            (GroupClient(ids[0]), "connect", FIRST + SECOND, 0, INCONSISTENT),
        )
    if walk.version(JoinGroupRequest) >= INSTANCES_SINCE and model.members:
        walk.check_refused_joins(
            (GroupClient(ids[0], instance="none"), PROTOCOL_TYPE, FIRST + SECOND, 0, ErrorCode.UNKNOWN_MEMBER_ID)
        )
    walk.leave(("unknown", None), ("", None), (stranger.member_id, None), *((each, "none") for each in ids))
    walk.check()
