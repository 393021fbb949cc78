"""Check heartbeats, and commits and fetches of offsets, by members of consumer groups."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from highwater.reference.groups.consumer.group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    Part,
)
from highwater.reference.refusals import RefusedRequestError
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest as Heartbeat

MEMBER_ID_SINCE: Final = 1
"""The version from which on the client chooses its member id (KIP-1082)."""
EPOCHS_SINCE: Final = 9
"""The version of OffsetCommit that members of the consumer protocol need."""
Rule = tuple[Callable[[Heartbeat, int], bool], str]


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip(" \t\n\r\f\v")


def _is_id_needed(body: Heartbeat, version: int) -> bool:
    return version >= MEMBER_ID_SINCE or body.member_epoch != JOIN_EPOCH


def _joins(body: Heartbeat) -> bool:
    return body.member_epoch == JOIN_EPOCH


MALFORMED: Final[tuple[Rule, ...]] = (
    (lambda body, version: _is_blank(body.group_id), "The group id must not be empty."),
    (lambda body, version: _is_blank(body.instance_id), "The instance id must not be empty."),
    (lambda body, version: _is_blank(body.rack_id), "The rack id must not be empty."),
    (lambda body, version: body.member_epoch < LEAVE_STATIC_EPOCH, "There is no such member epoch."),
    (lambda body, version: _is_id_needed(body, version) and _is_blank(body.member_id),
     "The member id must not be empty."),
    (lambda body, version: body.member_epoch == LEAVE_STATIC_EPOCH and body.instance_id is None,
     "Only a static member leaves with epoch -2: the instance id is missing."),
    (lambda body, version: _joins(body) and body.rebalance_timeout_ms == -1,
     "The first heartbeat must have a rebalance timeout."),
    (lambda body, version: _joins(body) and body.topic_partitions != (),
     "The first heartbeat must report an empty list of partitions."),
    (lambda body, version: _joins(body) and body.subscribed_topic_names is None and body.subscribed_topic_regex is None,
     "The first heartbeat must have topic names or a pattern."),
)  # fmt: skip
"""What makes a heartbeat INVALID_REQUEST, with the text of the response (GroupCoordinatorService)."""


def check_request(body: Heartbeat, version: int, assignors: Collection[str]) -> None:
    """Raise RefusedRequestError for a heartbeat that no state of the group makes valid."""
    for is_malformed, text in MALFORMED:
        if is_malformed(body, version):
            raise RefusedRequestError(ErrorCode.INVALID_REQUEST, text)
    if body.server_assignor is not None and body.server_assignor not in assignors:
        message = f"The assignor {body.server_assignor!r} is unknown; the broker has {', '.join(assignors)}."
        raise RefusedRequestError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def check_epoch(member: ConsumerMember, epoch: int, reported: Collection[Part] | None) -> None:
    """Raise FENCED_MEMBER_EPOCH for another epoch than the current one, with two exceptions.

    The previous one may be of a member that has not received the reply with the current one; it then owns nothing but
    what it is assigned. With epoch 0 a member that was fenced joins again.
    """
    if epoch in {member.epoch, JOIN_EPOCH}:
        return
    is_retry = epoch == member.previous_epoch and reported is not None
    if not is_retry or not all(part in member.assigned for part in reported or ()):
        message = f"The member is in epoch {member.epoch}, not {epoch}: it must give up its partitions and join again."
        raise RefusedRequestError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def commit_error(
    group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, parts: Iterable[Part], *,
    version: int | None,
) -> ErrorCode:  # fmt: skip
    """Return NONE if the member may commit offsets of these partitions (ConsumerGroup.validateOffsetCommit).

    `version` is that of OffsetCommit, None for a commit in a transaction. A member may be behind by some epochs, as it
    learns of a new one with its next heartbeat: it commits what was assigned to it in its epoch or before, and of
    which no other member can be the owner since (KIP-1251).
    """
    is_nameless = not member_id and instance_id is None and epoch == -1
    if epoch < 0 and (not group.members or (version is None and is_nameless)):
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is not None:
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.ILLEGAL_GENERATION
    if version is not None and version < EPOCHS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    owned = {**member.pending_revocation, **member.assigned}
    is_owner = epoch < member.epoch and all(part in owned and owned[part] <= epoch for part in parts)
    return ErrorCode.NONE if epoch == member.epoch or is_owner else ErrorCode.STALE_MEMBER_EPOCH


def fetch_error(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return NONE if the member may fetch offsets with this epoch; `group` is the committed state."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE if epoch == member.epoch else stale
