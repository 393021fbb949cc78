"""Trace the steps of the group coordinator by the action names of `spec/eager_rebalance` and `cooperative_rebalance`.

Member ids identify clients. A claim is `[topic-partition, ...]` with its generation: the owned partitions of the
subscription (KIP-429).
"""

from typing import Any

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.group import Group, Member
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest
from highwater.reference.wire.messages.consumer_groups import TopicPartition, decode_assignment, decode_subscription
from highwater.reference.wire.messages.groups import JoinGroupRequest, SyncGroupRequest

PARKED, ANSWERED = "parked", "answered"


class GroupTrace:
    """Writes trace events if tracing is on. `result` is the name of an error, `parked` or `answered`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def step(self, group: Group, action: str, **choices: Any) -> None:
        if self._context.out.tracing:
            self._write(group, action, choices)

    def join(self, group: Group, request: Request, member: Member, result: str, *, changed: bool = False) -> None:
        """Trace HandleJoin; `changed`: a known member sent other protocols or another subscription than before."""
        if self._context.out.tracing:
            claim, generation = _claim(member)
            lists = [protocol for protocol, _ in member.protocols]
            body: JoinGroupRequest = request.body
            identity: dict[str, Any] = {
                "member_id": member.member_id,
                "asked": body.member_id,
                "instance_id": member.instance_id or "",
            }
            identity["api_version"] = request.api_version
            metadata = {"claim": claim, "claim_generation": generation, "lists": lists, "changed": changed}
            self._write(group, "HandleJoin", {**identity, **metadata, "result": result})

    def rejected_join(self, group: Group, body: JoinGroupRequest, error: ErrorCode) -> None:
        if self._context.out.tracing:
            instance_id = body.group_instance_id or ""
            choices = {"member_id": body.member_id, "asked": body.member_id, "instance_id": instance_id}
            self._write(group, "HandleJoin", choices | {"result": error.name})

    def sync(self, group: Group, body: SyncGroupRequest, result: str) -> None:
        if self._context.out.tracing:
            choices = {"member_id": body.member_id, "asked_generation": body.generation_id, "result": result}
            assignments = {entry.member_id: entry.assignment for entry in body.assignments}
            choices |= {"instance_id": body.group_instance_id or "", "assignment": _assignment(assignments)}
            self._write(group, "HandleSync", choices)

    def leader_sync(self, group: Group, assignments: dict[str, bytes]) -> None:
        if self._context.out.tracing:
            self._write(group, "LeaderSync", _content(group, assignments))

    def commit(self, group: Group | None, body: OffsetCommitRequest, error: ErrorCode) -> None:
        """Trace the commit of a member; a client without a member id is not part of the specification."""
        if self._context.out.tracing and group is not None and body.member_id:
            choices = {"member_id": body.member_id, "asked_generation": body.generation_id_or_member_epoch}
            partitions = [f"{topic.name}-{part.partition_index}" for topic in body.topics for part in topic.partitions]
            self._write(group, "HandleCommit", choices | {"result": error.name, "partitions": partitions})

    def failover(self, group: Group) -> None:
        if self._context.out.tracing:
            self._write(group, "Failover", _content(group, None))

    def begin_store(self, group: Group, assignments: dict[str, bytes] | None) -> dict[str, Any]:
        """Trace StoreGroup with these assignments or the current ones; return the choices for `group_stored`."""
        if not self._context.out.tracing:
            return {}
        content = _content(group, assignments) | {"stored_generation": group.generation_id}
        content["stored_members"] = list(group.members)
        self._write(group, "StoreGroup", content)
        return content

    def group_stored(self, group: Group, content: dict[str, Any]) -> None:
        if self._context.out.tracing:
            self._write(group, "GroupStored", content)

    def _write(self, group: Group, action: str, choices: dict[str, Any]) -> None:
        members = list(group.members)
        self._context.trace(group.group_id, action, choices=choices, generation=group.generation_id, members=members)


def _content(group: Group, assignments: dict[str, bytes] | None) -> dict[str, Any]:
    current = {member.member_id: member.assignment for member in group.members.values()}
    stored = current if assignments is None else {name: assignments.get(name, b"") for name in current}
    return {"leader": group.leader or "", "assignment": _assignment(stored)}


def _assignment(assignments: dict[str, bytes]) -> list[list[str]]:
    """Return pairs of member id and partition; skip assignments that are not of the consumer protocol."""
    pairs = []
    for member_id, data in assignments.items():
        try:
            assigned = decode_assignment(data).assigned_partitions if data else ()
        except DecodeError:
            continue
        pairs += [[member_id, partition] for partition in _partition_names(assigned)]
    return pairs


def _claim(member: Member) -> tuple[list[str], int]:
    """Return the owned partitions and their generation, which are the same under every assignor."""
    for _, metadata in member.protocols:
        try:
            subscription = decode_subscription(metadata)
        except DecodeError:
            continue
        if subscription.owned_partitions:
            return _partition_names(subscription.owned_partitions), subscription.generation_id
    return [], -1


def _partition_names(partitions: tuple[TopicPartition, ...]) -> list[str]:
    return [f"{topic.topic}-{number}" for topic in partitions for number in topic.partitions]
