"""Probes of committed offsets: a model under drawn commits, and what expiry and deleted topics leave."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group, beat, stable
from highwater.fuzz.simulator.probes.client.requests import of_topics, parts_of, request
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.offsets import Key, all_committed, committed, committed_ok
from highwater.fuzz.simulator.probes.topics import delete

Stored = tuple[int, int, str]
"""A committed offset: the offset, its leader epoch and its metadata."""
NONE: Final[Stored] = (-1, -1, "")
COMMIT_VERSIONS: Final = (2, 4, 5, 6, 7, 8, 9)
FETCH_VERSIONS: Final = tuple(range(1, 10))
EPOCH_OF_COMMIT, EPOCH_OF_FETCH, GROUPS_OF_FETCH, ALL_OF_FETCH = 6, 5, 8, 2
"""First versions with a leader epoch in OffsetCommit and in OffsetFetch, with several groups, with null for all."""
KEPT_MS: Final = 1_200
LONG_MS: Final = 60_000


class OffsetsModel:
    """A model of the committed offsets of one group."""

    def __init__(self, group: Group, keys: list[Key]) -> None:
        self.group, self.session, self.keys = group, group.session, keys
        self.stored: dict[Key, Stored] = {}

    def drawn(self) -> dict[Key, Stored]:
        """Return new offsets of some partitions, in any order and not only larger ones."""
        draw = self.session.draw
        chosen = {self.session.one_of(*self.keys) for _ in range(1 + draw(3))}
        return {key: (draw(1 << 20), draw(9) - 1, "m" * draw(9)) for key in sorted(chosen)}

    async def commit(self, version: int) -> None:
        """Commit in a version, together with a partition that does not exist."""
        new = self.drawn()
        if version < EPOCH_OF_COMMIT:
            new = {key: (offset, -1, metadata) for key, (offset, _, metadata) in new.items()}
        unknown = (self.keys[0][0], 99)
        topics = _topics({**new, unknown: (1, -1, "")})
        answer = await self.group.ask("OffsetCommit", version, topics=topics)
        self._errors(parts_of(answer), new, unknown, f"OffsetCommit {version}")
        self.stored |= new

    async def transaction(self, producer: Transactional, *, commit: bool) -> None:
        """Commit in a transaction, together with a partition that does not exist, and end it."""
        new, unknown = self.drawn(), (self.keys[0][0], 99)
        if not producer.v2:
            self.session.ok(await producer.add_offsets(self.group.name), "AddOffsetsToTxn")
        body: dict[str, Any] = {"transactional_id": producer.name, "producer_id": producer.producer,
                                "producer_epoch": producer.epoch}  # fmt: skip
        topics = _topics({**new, unknown: (1, -1, "")})
        version = 5 if producer.v2 else 3
        answer = await producer.patiently(partial(self.group.ask, "TxnOffsetCommit", version, topics=topics, **body))
        self._errors(parts_of(answer), new, unknown, "TxnOffsetCommit")
        await producer.ended(commit=commit)
        if commit:
            self.stored |= new
        keys = list(new)
        expected = {key: (self.stored.get(key, NONE)[0], 0) for key in keys}
        await self.session.until(
            partial(committed, self.group, keys, stable=True), expected, "offsets after a transaction", 2_500
        )

    def _errors(self, parts: dict[Key, Any], new: dict[Key, Stored], unknown: Key, what: str) -> None:
        errors = {key: part.error_code for key, part in parts.items()}
        expected = {**dict.fromkeys(new, 0), unknown: int(E.UNKNOWN_TOPIC_OR_PARTITION)}
        self.session.equal(errors, expected, f"the errors of {what}")

    async def check(self, version: int) -> None:
        """OffsetFetch returns every partition as it was committed last, -1 for the others (OFF-1, OFF-2, OFF-14)."""
        keys = None if version >= ALL_OF_FETCH and self.session.draw(2) else self.keys
        topics = None if keys is None else of_topics(keys, partitions="partition_indexes")
        if version < GROUPS_OF_FETCH:
            body = request("OffsetFetch", group_id=self.group.name, topics=topics)
            answer = await self.session.ask(self.group.coordinator, body, version)
        else:
            body = request("OffsetFetch", groups=[{"group_id": self.group.name, "topics": topics}])
            answer = (await self.session.ask(self.group.coordinator, body, version)).groups[0]
        with_epoch = version >= EPOCH_OF_FETCH
        found = {
            key: (part.committed_offset, part.committed_leader_epoch if with_epoch else -1, part.metadata)
            for key, part in parts_of(answer).items()
        }
        wanted = self.stored if keys is None else {key: self.stored.get(key, NONE) for key in keys}
        expected = {key: (each[0], each[1] if with_epoch else -1, each[2]) for key, each in wanted.items()}
        self.session.equal(found, expected, f"the offsets of OffsetFetch {version}")


def _topics(offsets: dict[Key, Stored]) -> list[Any]:
    return of_topics(
        (topic, {"partition_index": number, "committed_offset": offset, "committed_leader_epoch": epoch,
                 "committed_metadata": metadata})
        for (topic, number), (offset, epoch, metadata) in offsets.items()
    )  # fmt: skip


@fields("OFF-1", "OFF-2", "OFF-6", "OFF-14", "OFF-15", "OFF-23", "TXN-10")
async def drawn_offsets(session: Session) -> None:
    """A group has exactly the offsets of its newest commits, in every version, with and without transactions."""
    first, second = await session.create_topic("a", 3), await session.create_topic("b", 2)
    group = await Group.found(session)
    keys = [(topic, number) for topic, count in ((first, 3), (second, 2)) for number in range(count)]
    model = OffsetsModel(group, keys)
    producers = [await Transactional(session, f"p{n}", v2=bool(n)).begin() for n in range(2)]
    for _ in range(14):
        if session.draw(2):
            await model.commit(session.one_of(*COMMIT_VERSIONS))
        else:
            await model.transaction(session.one_of(*producers), commit=session.draw(3) > 0)
        await model.check(session.one_of(*FETCH_VERSIONS))


@fields("OFF-18", "TXN-10", "TXN-22", "ADM-20")
async def offsets_of_deleted_topics(session: Session) -> None:
    """When a topic is deleted, all its offsets are, those of open transactions too; the transactions end."""
    gone, left = await session.create_topic("gone", 4), await session.create_topic("left")
    plain, pending = await Group.found(session, "plain"), await Group.found(session, "pending")
    number = 1 + session.draw(3)
    await committed_ok(plain, {(gone, number): 3, (left, 0): 4})
    producer = await Transactional(session).begin()
    await producer.committed_offsets(pending, {(gone, number): 5, (left, 0): 6})
    await producer.added((gone, 0), (left, 0))
    await producer.write(gone, 0, b"v")
    await producer.write(left, 0, b"v")
    await delete(session, gone)
    await session.until(partial(keys_of, plain), {(left, 0)}, "the partitions with offsets after a topic was deleted")
    if session.draw(2):
        await session.create_topic("gone", 4)
    await producer.ended(commit=True)
    await session.until(
        partial(keys_of, pending), {(left, 0)}, "the partitions with offsets after the transaction", 2_500
    )
    stable_end = partial(session.offset, left, -1, 0, 1)
    await session.until(stable_end, 2, "the last stable offset after a transaction with a deleted topic", 2_500)
    await producer.added((left, 0))
    await producer.write(left, 0, b"next")
    await producer.ended(commit=True)


async def keys_of(group: Group) -> set[Key]:
    """Return the partitions of which a group has an offset."""
    return set(await all_committed(group))


@fields("OFF-19", "OFF-20", "GRP-65", "TXN-10")
async def expiry_of_offsets(session: Session) -> None:
    """A retention of its own ends an offset when it has passed, unless members use it; a group is removed after it."""
    topic, other = await session.create_topic("kept"), await session.create_topic("other")
    plain, active, open_group = [await Group.found(session, name) for name in ("plain", "active", "open")]
    kinds = [await Group.found(session, kind) for kind in ("consumer", "connect")]
    members = {
        group: group.member(topic, protocol_type=kind)
        for group, kind in zip(kinds, ("consumer", "connect"), strict=True)
    }
    for group, member in members.items():
        await stable(group, member)
        by = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
        await commit_for(group, {(topic, 0): 3}, KEPT_MS, **by)
    await commit_for(plain, {(topic, 0): 1}, KEPT_MS)
    await commit_for(active, {(topic, 0): 1, (other, 0): 2}, LONG_MS)
    producer = await Transactional(session).begin()
    await producer.committed_offsets(open_group, {(topic, 0): 8})
    await session.sleep(KEPT_MS // 2)
    session.equal(await keys_of(plain), {(topic, 0)}, "the offsets before their retention has passed")
    for _ in range(4):
        await session.sleep(KEPT_MS // 3)
        await beat(members.values())
    await session.until(partial(keys_of, plain), set(), "the offsets after their retention has passed", 1_500)
    session.equal(await keys_of(active), {(topic, 0), (other, 0)}, "the offsets whose retention has not passed")
    await beat(members.values())
    for group in kinds:
        session.equal(await keys_of(group), {(topic, 0)}, f"the offsets that the members of {group.name} use")
    await producer.ended(commit=True)
    applied = partial(keys_of, open_group)
    await session.until(applied, {(topic, 0)}, "the offsets of a transaction that was open for a second", 1_500)
    for group, member in members.items():
        await group.leave(member)
        await session.until(
            partial(keys_of, group), set(), f"the offsets after the members of {group.name} left", 1_500
        )


async def commit_for(group: Group, offsets: dict[Key, int], retention_ms: int, **by: Any) -> None:
    """Commit offsets with a retention time of their own, which OffsetCommit 2 to 4 have."""
    topics = _topics({key: (offset, -1, "") for key, offset in offsets.items()})
    version = 2 + group.session.draw(3)
    answer = await group.ask("OffsetCommit", version, topics=topics, retention_time_ms=retention_ms, **by)
    errors = {part.error_code for part in parts_of(answer).values()}
    group.session.equal(errors, {0}, f"the errors of OffsetCommit {version} with a retention time")
