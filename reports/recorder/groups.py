"""Observers of SyncGroup, ConsumerGroupHeartbeat, OffsetCommit, OffsetFetch, OffsetDelete and DeleteGroups."""

from typing import Any

from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.messages.consumer_groups import decode_assignment
from highwater.reports.recorder.exchanges import GROUP_REFUSED, Finish, Link, key_of, outcome_of, simple


def sync(link: Link, request: Any) -> Finish | None:
    if not link.cluster.wants(request.group_id):
        return None
    member = {
        "group": request.group_id, "generation_id": request.generation_id, "member_id": request.member_id,
        "instance_id": request.group_instance_id,
    }  # fmt: skip
    operation = link.cluster.recording.invoke("sync", **member)

    def interpret(reply: Any) -> tuple[str, dict[str, Any]]:
        if reply.error_code:
            return "fail", {**member, "error": f"error {reply.error_code}"}
        try:
            assigned = decode_assignment(reply.assignment).assigned_partitions
        except DecodeError:  # not a group of consumers
            return "ok", {**member, "node": link.node}
        value = [
            key_of(topic_assignment.topic, number)
            for topic_assignment in assigned
            for number in topic_assignment.partitions
        ]
        return "ok", {**member, "node": link.node, "value": value}

    return simple(link, operation, interpret)


def heartbeat(link: Link, request: Any) -> Finish | None:
    """Record the assignment that a coordinator grants, by member epoch (KIP-848).

    An epoch has one assignment, so grants of one epoch are compared with each other. Commits are not, because the
    members of a group may be in different epochs. The operation is recorded on reply: most heartbeats grant nothing.
    """
    link.cluster.by_epoch.add(request.group_id)
    if not link.cluster.wants(request.group_id):
        return None

    def finish(reply: Any | None) -> None:
        if reply is None or reply.error_code:
            return
        member_id = reply.member_id or request.member_id
        if request.instance_id is not None:  # clients may send it on joining only
            link.cluster.instances[member_id] = request.instance_id
        if reply.assignment is None or reply.member_epoch <= 0:
            return
        member = {
            "group": request.group_id, "generation_id": reply.member_epoch, "member_id": member_id,
            "instance_id": link.cluster.instances.get(member_id),
        }  # fmt: skip
        granted = [
            key_of(topic, number)
            for topic_partitions in reply.assignment.topic_partitions
            if (topic := link.cluster.topic("", topic_partitions.topic_id)) is not None
            for number in topic_partitions.partitions
        ]
        operation = link.cluster.recording.invoke("sync", **member)
        link.cluster.recording.complete(operation, "ok", node=link.node, value=granted, **member)

    return finish


def commit(link: Link, request: Any) -> Finish | None:
    """Record an offset commit; if only some partitions succeed, record those."""
    if not link.cluster.wants(request.group_id):
        return None
    requested = {
        (topic.name or topic.topic_id, part.partition_index): part.committed_offset
        for topic in request.topics
        for part in topic.partitions
    }
    epoch = request.generation_id_or_member_epoch
    member = {
        "group": request.group_id, "generation_id": None if request.group_id in link.cluster.by_epoch else epoch,
        "member_id": request.member_id or None, "instance_id": request.group_instance_id,
    }  # fmt: skip
    operation = link.cluster.recording.invoke("commit", value=_named(link, requested), **member)

    def interpret(reply: Any) -> tuple[str, dict[str, Any]]:
        codes = {
            (topic.name or topic.topic_id, part.partition_index): part.error_code
            for topic in reply.topics
            for part in topic.partitions
        }
        taken = {where: offset for where, offset in requested.items() if codes.get(where) == 0}
        kind = "ok" if taken else outcome_of(list(codes.values()) or [-1], GROUP_REFUSED)
        return kind, {**member, "value": _named(link, taken or requested), "node": link.node}

    return simple(link, operation, interpret)


def _named(link: Link, offsets: dict[tuple[str | bytes, int], int]) -> dict[str, int]:
    named = {}
    for (name, number), offset in offsets.items():
        topic = link.cluster.topic(name, b"") if isinstance(name, str) else link.cluster.topic("", name)
        if topic is not None and number >= 0:
            named[key_of(topic, number)] = max(offset, -1)
    return named


def committed(link: Link, request: Any) -> Finish | None:
    """Record an OffsetFetch as one operation for each group."""
    requested = [entry.group_id for entry in request.groups] or [request.group_id]
    opened = {
        group: link.cluster.recording.invoke("committed", group=group)
        for group in requested
        if link.cluster.wants(group)
    }

    def finish(reply: Any | None) -> None:
        answers: dict[str, Any] = {}
        if reply is not None:
            answers = {entry.group_id: entry for entry in reply.groups} if reply.groups else {requested[0]: reply}
        for group, operation in opened.items():
            answer = answers.get(group)
            if answer is None or answer.error_code:
                link.cluster.recording.complete(operation, "info", group=group)
                continue
            offsets = {
                (
                    getattr(topic, "name", "") or getattr(topic, "topic_id", ""),
                    part.partition_index,
                ): part.committed_offset
                for topic in answer.topics
                for part in topic.partitions
                if not part.error_code
            }
            link.cluster.recording.complete(operation, "ok", group=group, node=link.node, value=_named(link, offsets))

    return finish if opened else None


def delete_groups(link: Link, request: Any) -> Finish | None:
    opened = {
        group: link.cluster.recording.invoke("delete_offsets", group=group)
        for group in request.groups_names
        if link.cluster.wants(group)
    }

    def finish(reply: Any | None) -> None:
        codes = {result.group_id: result.error_code for result in reply.results} if reply is not None else {}
        for group, operation in opened.items():
            kind = outcome_of([codes[group]], GROUP_REFUSED) if group in codes else "info"
            link.cluster.recording.complete(operation, kind, group=group)

    return finish if opened else None


def delete_offsets(link: Link, request: Any) -> Finish | None:
    """Record an OffsetDelete; what a partition's error leaves in place is not deleted."""
    if not link.cluster.wants(request.group_id):
        return None
    requested = [
        key_of(topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
        if part.partition_index >= 0
    ]
    if not requested:  # an empty list would be the whole group
        return None
    operation = link.cluster.recording.invoke("delete_offsets", group=request.group_id, value=requested)

    def interpret(reply: Any) -> tuple[str, dict[str, Any]]:
        deleted = [
            key_of(topic.name, part.partition_index)
            for topic in reply.topics
            for part in topic.partitions
            if not part.error_code
        ]
        kind = outcome_of([reply.error_code], GROUP_REFUSED) if deleted or reply.error_code else "fail"
        return kind, {"group": request.group_id, "value": deleted or requested}

    return simple(link, operation, interpret)
