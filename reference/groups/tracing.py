"""What a group coordinator says of its steps, by the names of `spec/eager_rebalance` and `spec/cooperative_rebalance`.

Member ids stand for clients; a claim is `[topic-partition, ...]` and its generation, as the subscription has them.
"""

from typing import Any

from reference.context import Context
from reference.events import Request
from reference.groups.group import Group, Member
from reference.wire.errors import DecodeError, ErrorCode
from reference.wire.messages.consumer_protocol import TopicPartition, decode_assignment, decode_subscription
from reference.wire.messages.join_group import JoinGroupRequest
from reference.wire.messages.offset_commit import OffsetCommitRequest
from reference.wire.messages.sync_group import SyncGroupRequest

PARKED, ANSWERED = "parked", "answered"


class GroupTrace:
    """Costs one comparison a step when nobody traces. `result` is an error's name, or what becomes of the request."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def step(self, group: Group, action: str, **choices: Any) -> None:
        if self._context.out.tracing:
            self._tell(group, action, choices)

    def join(self, group: Group, request: Request, member: Member, result: str, *, changed: bool = False) -> None:
        """`changed`: a known member tells other protocols or another subscription than before."""
        if self._context.out.tracing:
            claim, generation = _claim(member)
            lists = [protocol for protocol, _ in member.protocols]
            asked: JoinGroupRequest = request.body
            named: dict[str, Any] = {
                "member_id": member.member_id,
                "asked": asked.member_id,
                "instance_id": member.instance_id or "",
            }
            named["api_version"] = request.api_version
            told = {"claim": claim, "claim_generation": generation, "lists": lists, "changed": changed}
            self._tell(group, "HandleJoin", {**named, **told, "result": result})

    def refused_join(self, group: Group, body: JoinGroupRequest, error: ErrorCode) -> None:
        if self._context.out.tracing:
            instance_id = body.group_instance_id or ""
            choices = {"member_id": body.member_id, "asked": body.member_id, "instance_id": instance_id}
            self._tell(group, "HandleJoin", choices | {"result": error.name})

    def sync(self, group: Group, body: SyncGroupRequest, result: str) -> None:
        if self._context.out.tracing:
            choices = {"member_id": body.member_id, "asked_generation": body.generation_id, "result": result}
            given = {each.member_id: each.assignment for each in body.assignments}
            choices |= {"instance_id": body.group_instance_id or "", "assignment": _assignment(given)}
            self._tell(group, "HandleSync", choices)

    def leader_sync(self, group: Group, assignments: dict[str, bytes]) -> None:
        if self._context.out.tracing:
            self._tell(group, "LeaderSync", _content(group, assignments))

    def commit(self, group: Group | None, body: OffsetCommitRequest, error: ErrorCode) -> None:
        """Of a member; who is none commits to a group that is not in use."""
        if self._context.out.tracing and group is not None and body.member_id:
            choices = {"member_id": body.member_id, "asked_generation": body.generation_id_or_member_epoch}
            self._tell(group, "HandleCommit", choices | {"result": error.name})

    def took_over(self, group: Group) -> None:
        if self._context.out.tracing:
            self._tell(group, "Failover", _content(group, None))

    def begin_store(self, group: Group, assignments: dict[str, bytes] | None) -> dict[str, Any]:
        """The group is appended as it is, with these assignments or its own; returns what to tell when it is done."""
        if not self._context.out.tracing:
            return {}
        content = _content(group, assignments) | {"stored_generation": group.generation_id}
        content["stored_members"] = list(group.members)
        self._tell(group, "StoreGroup", content)
        return content

    def stored(self, group: Group, content: dict[str, Any]) -> None:
        if self._context.out.tracing:
            self._tell(group, "GroupStored", content)

    def _tell(self, group: Group, action: str, choices: dict[str, Any]) -> None:
        members = list(group.members)
        self._context.trace(group.group_id, action, choices=choices, generation=group.generation_id, members=members)


def _content(group: Group, assignments: dict[str, bytes] | None) -> dict[str, Any]:
    had = {each.member_id: each.assignment for each in group.members.values()}
    given = had if assignments is None else {each: assignments.get(each, b"") for each in had}
    return {"leader": group.leader or "", "assignment": _assignment(given)}


def _assignment(assignments: dict[str, bytes]) -> list[list[str]]:
    """Pairs of member and partition; nothing of what is not the consumer protocol's."""
    pairs = []
    for member_id, data in assignments.items():
        try:
            assigned = decode_assignment(data).assigned_partitions if data else ()
        except DecodeError:
            continue
        pairs += [[member_id, partition] for partition in _named(assigned)]
    return pairs


def _claim(member: Member) -> tuple[list[str], int]:
    """The first subscription that claims anything: members claim the same under every assignor."""
    for _, metadata in member.protocols:
        try:
            found = decode_subscription(metadata)
        except DecodeError:
            continue
        if found.owned_partitions:
            return _named(found.owned_partitions), found.generation_id
    return [], -1


def _named(partitions: tuple[TopicPartition, ...]) -> list[str]:
    return [f"{each.topic}-{number}" for each in partitions for number in each.partitions]
