"""Probes of committed offsets: who may commit, what is returned, what deletes them."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from highwater.fuzz.simulator.probes.client.members import Group, Member, stable, sync_all
from highwater.fuzz.simulator.probes.client.node import probe
from highwater.fuzz.simulator.probes.client.requests import of_topics, parts_of, request
from highwater.fuzz.simulator.probes.client.session import E, Session

Key = tuple[str, int]
EPOCH = 0
"""The leader epoch of every commit."""


def commit_request(
    group: Group, offsets: dict[Key, int], member: Member | None = None, *, metadata: str | None = "m", **changes: Any
) -> Any:
    """Return an OffsetCommit, of a member or of a client that is none."""
    parts = [
        (topic, {"partition_index": number, "committed_offset": offset, "committed_leader_epoch": EPOCH,
                 "committed_metadata": metadata})
        for (topic, number), offset in offsets.items()
    ]  # fmt: skip
    by = {} if member is None else {"generation_id_or_member_epoch": member.generation, "member_id": member.id,
                                    "group_instance_id": member.instance}  # fmt: skip
    return request("OffsetCommit", group_id=group.name, topics=of_topics(parts), **{**by, **changes})


async def commit(group: Group, offsets: dict[Key, int], member: Member | None = None, **changes: Any) -> dict[Key, int]:
    """Return the errors of OffsetCommit."""
    answer = await group.session.ask(group.coordinator, commit_request(group, offsets, member, **changes))
    return {key: part.error_code for key, part in parts_of(answer).items()}


async def committed_ok(group: Group, offsets: dict[Key, int], member: Member | None = None) -> None:
    """Commit offsets, which must succeed."""
    group.session.equal(set((await commit(group, offsets, member)).values()), {0}, f"the errors of a commit {offsets}")


async def _fetched(group: Group, topics: list[Any] | None, *, stable: bool) -> dict[Key, Any]:
    """Return the partitions of OffsetFetch, whose version is drawn: 8 has a list of groups."""
    if group.session.draw(2):
        body = request("OffsetFetch", group_id=group.name, topics=topics, require_stable=stable)
        answer = await group.session.ask(group.coordinator, body)
    else:
        body = request("OffsetFetch", groups=[{"group_id": group.name, "topics": topics}], require_stable=stable)
        answer = (await group.session.ask(group.coordinator, body, 8)).groups[0]
    group.session.ok(answer.error_code, "OffsetFetch")
    return parts_of(answer)


async def committed(group: Group, keys: Iterable[Key], *, stable: bool = False) -> dict[Key, tuple[int, int]]:
    """Return offset and error of OffsetFetch for each partition."""
    found = await _fetched(group, of_topics(keys, partitions="partition_indexes"), stable=stable)
    return {key: (part.committed_offset, part.error_code) for key, part in found.items()}


async def all_committed(group: Group) -> dict[Key, tuple[int, str | None, int]]:
    """Return offset, metadata and leader epoch of every committed offset of a group (OFF-6)."""
    found = await _fetched(group, None, stable=False)
    return {key: (part.committed_offset, part.metadata, part.committed_leader_epoch) for key, part in found.items()}


async def expect_offsets(group: Group, expected: dict[Key, int], metadata: str = "m") -> None:
    """Expect exactly these committed offsets, with their metadata and leader epoch (OFF-1)."""
    wanted = {key: (offset, metadata, EPOCH) for key, offset in expected.items()}
    group.session.equal(await all_committed(group), wanted, f"the committed offsets of {group.name}")
    group.session.equal(await committed(group, []), {}, "the offsets of no topic")


@probe("OFF-1", "OFF-2", "OFF-3", "OFF-4", "OFF-6", "OFF-9", "OFF-13", "OFF-15", "OFF-17", "OFF-21")
async def commits(session: Session) -> None:
    """Who may commit, and what OffsetFetch returns."""
    topic, other = await session.create_topic("a", 3), await session.create_topic("b")
    group = await Group.found(session)
    expected = {(topic, 0): 7, (topic, 1): 1 << 40, (other, 0): 0}
    await committed_ok(group, expected)
    await expect_offsets(group, expected)
    session.equal(await committed(group, [(topic, 2)]), {(topic, 2): (-1, 0)}, "an offset that was never committed")
    unknown = {(f"{topic}-none", 0): 9, (topic, 8): 9}
    errors = await commit(group, {(topic, 0): 3, **unknown, (topic, 2): 4, (topic, 1): 5, (other, 0): 2}, metadata=None)
    expected = {(topic, 0): 3, (topic, 2): 4, (topic, 1): 5, (other, 0): 2}
    wanted = dict.fromkeys(expected, 0) | dict.fromkeys(unknown, E.UNKNOWN_TOPIC_OR_PARTITION)
    session.equal(errors, wanted, "the errors of a commit with unknown partitions")
    await expect_offsets(group, expected, metadata="")
    await committed_ok(group, expected)
    members = [group.member(topic), group.member(other)]
    await stable(group, *members)
    key = (topic, 0)
    found = await commit(group, {key: 99})
    session.equal(found, {key: E.UNKNOWN_MEMBER_ID}, "a commit without a member beside members")
    for change, error in ((-1, E.ILLEGAL_GENERATION), (1, E.ILLEGAL_GENERATION), (0, E.NONE)):
        generation = members[0].generation + change
        errors = await commit(group, {key: 50 + change}, members[0], generation_id_or_member_epoch=generation)
        session.equal(errors, {key: error}, f"a commit of generation {generation} of {members[0].generation}")
    found = await commit(group, {key: 98}, members[1], member_id="unknown")
    session.equal(found, {key: E.UNKNOWN_MEMBER_ID}, "a commit of an unknown member")
    await expect_offsets(group, expected | {key: 50})
    for name in (topic, other):
        code = await _delete_offset(group, (name, 0))
        session.error(code, E.GROUP_SUBSCRIBED_TO_TOPIC, f"OffsetDelete of {name}, with a member")
    await _during_a_rebalance(group, members, key)


async def _during_a_rebalance(group: Group, members: list[Member], key: Key) -> None:
    """A commit is accepted until the member joins again, and not before the assignment (OFF-3, OFF-21)."""
    session, first = group.session, next(m for m in members if not m.leads)
    new = group.member()
    await new.take_id()
    begun = new.begin_join()
    await session.sleep(60)
    await committed_ok(group, {key: 59}, first)
    waiting = [(m, m.begin_join()) for m in members]
    for member, pending in [(new, begun), *waiting]:
        await member.end_join(pending)
    found = await commit(group, {key: 60}, first)
    session.equal(found, {key: E.REBALANCE_IN_PROGRESS}, "a commit before the assignment")
    await sync_all([*members, new])
    session.equal((await committed(group, [key]))[key], (59, 0), "the offset that was committed in a rebalance")
    await group.leave(*members, new)
    session.ok(await _delete_offset(group, key), "OffsetDelete in an empty group")
    session.equal(await committed(group, [key]), {key: (-1, 0)}, "a deleted offset")


async def _delete_offset(group: Group, key: Key) -> int:
    answer = await group.ask("OffsetDelete", topics=of_topics([(key[0], {"partition_index": key[1]})]))
    group.session.ok(answer.error_code, "OffsetDelete")
    return int(parts_of(answer)[key].error_code)


@probe("OFF-18", "GRP-20", "GRP-50")
async def deletions_of_offsets(session: Session) -> None:
    """Offsets of a deleted topic and of a deleted group are deleted, also beside members."""
    gone, left = await session.create_topic("gone", 2), await session.create_topic("left")
    active, empty = await Group.found(session, "active"), await Group.found(session, "empty")
    member = active.member(gone, left)
    await stable(active, member)
    offsets = {(gone, 0): 5, (gone, 1): 6, (left, 0): 7}
    await committed_ok(active, offsets, member)
    await committed_ok(empty, offsets)
    answer = await session.ask_any(request("DeleteTopics", topic_names=[gone], timeout_ms=2_000))
    session.ok(answer.responses[0].error_code, "DeleteTopics")
    for group in (active, empty):
        await session.until(partial(_keys, group), {(left, 0)}, f"partitions with an offset in {group.name}", 3_000)
    session.ok(await empty.delete(), "DeleteGroups of an empty group")
    session.equal(await all_committed(empty), {}, "the offsets of a deleted group")
    session.equal((await empty.describe()).group_state, "Dead", "the state of a deleted group")
    session.ok(await member.heartbeat(), "a heartbeat after the deletions")


async def _keys(group: Group) -> set[Key]:
    return set(await all_committed(group))
