"""A model of who may send what to a group: identities, states and requests, also in transactions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import ARRIVAL_MS, Group, Member, beat, rejoin, stable, sync_all
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.offsets import commit, committed_ok

LONG_MS: Final = 20_000
NO_GENERATION: Final = -1
COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit")
REQUESTS: Final = ("Heartbeat", "SyncGroup", *COMMITS)


@dataclass(frozen=True)
class Identity:
    """What a request says of its sender."""

    member_id: str
    instance: str | None
    generation: int

    def refused(self, group: "Members") -> E:
        """Return the error of the checks that all requests share (ClassicGroup.validateMember)."""
        if self.instance is not None:
            current = group.instances.get(self.instance)
            if current is None:
                return E.UNKNOWN_MEMBER_ID
            if current != self.member_id:
                return E.FENCED_INSTANCE_ID
        if self.member_id not in group.ids:
            return E.UNKNOWN_MEMBER_ID
        return E.NONE if self.generation == group.generation else E.ILLEGAL_GENERATION


@dataclass
class Members:
    """A model of a group: its state, its generation and its members."""

    state: str
    generation: int
    ids: set[str]
    instances: dict[str, str]

    def error(self, api: str, by: Identity) -> E:
        """Return the error of a request (GroupCoordinator, ClassicGroup.validateOffsetCommit)."""
        is_nameless = by.generation < 0 and not by.member_id and by.instance is None
        if api in COMMITS and by.generation < 0 and (self.state == "Empty" or (is_nameless and api == COMMITS[1])):
            return E.NONE
        if api == "OffsetCommit" and is_nameless:
            return E.UNKNOWN_MEMBER_ID
        error = by.refused(self)
        if error is not E.NONE:
            return error
        is_rebalancing = self.state == "PreparingRebalance" and api not in COMMITS
        is_completing = self.state == "CompletingRebalance" and api == "OffsetCommit"
        return E.REBALANCE_IN_PROGRESS if is_rebalancing or is_completing else E.NONE


def _identities(members: Iterable[Member], former: str, model: Members) -> list[Identity]:
    """Return identities of members, of strangers, and mixtures of both."""
    found = [
        Identity("", None, NO_GENERATION),
        Identity("", None, model.generation),
        Identity("stranger", None, NO_GENERATION),
    ]
    for each in members:
        found += [
            Identity(member_id, instance, generation)
            for member_id in (each.id, "stranger", former)
            for instance in dict.fromkeys((each.instance, None, "unknown"))
            for generation in (model.generation, model.generation + 1, model.generation - 1, NO_GENERATION)
        ]
    return list(dict.fromkeys(found))


@fields("GRP-5", "GRP-11", "GRP-12", "GRP-43", "GRP-45", "GRP-46", "GRP-69", "OFF-3", "OFF-21", "TXN-20", "FLD-9")
async def identities_in_each_state(session: Session) -> None:
    """Each request is accepted exactly from whom the state of the group allows it."""
    topic = await session.create_topic("who")
    group = await Group.found(session)
    producer = await Transactional(session).begin()
    session.ok(await producer.add_offsets(group.name), "AddOffsetsToTxn")
    leader, first = group.member("a", rebalance_ms=LONG_MS), group.member("a", rebalance_ms=LONG_MS, instance="one")
    await stable(group, leader, first)
    static = group.member("a", rebalance_ms=LONG_MS, instance="one")
    await static.end_join(static.begin_join(9))
    former, members = first.id, (leader, static)
    sender = _Sender(group, producer, topic)
    await sender.check(members, former, "Stable")
    pending = leader.begin_join()
    await session.sleep(ARRIVAL_MS)
    await sender.check(members, former, "PreparingRebalance")
    joining = static.begin_join()
    for member, join in ((leader, pending), (static, joining)):
        await member.end_join(join)
    await sender.check(members, former, "CompletingRebalance", ("Heartbeat", *COMMITS))
    await sync_all(members)
    await beat(members)
    await producer.ended(commit=True)
    session.ok(await producer.add_offsets(group.name), "AddOffsetsToTxn of the next transaction")
    await committed_ok(group, {(topic, 0): 1}, leader)
    await group.leave(*members)
    await sender.check(members, former, "Empty")
    await producer.ended(commit=True)
    await rejoin(group.member("b", instance="two"))


class _Sender:
    """Sends each request with some identities, and compares the errors with the model."""

    def __init__(self, group: Group, producer: Transactional, topic: str) -> None:
        self._group, self._producer, self._topic = group, producer, topic

    async def check(
        self, members: Iterable[Member], former: str, state: str, requests: Iterable[str] = REQUESTS
    ) -> None:
        session, listed = self._group.session, list(members)
        here = [] if state == "Empty" else listed
        instances = {each.instance: each.id for each in here if each.instance is not None}
        model = Members(state, listed[0].generation, {each.id for each in here}, instances)
        if state == "PreparingRebalance":
            await self._group.state(state)
        for by in _drawn(session, _identities(listed, former, model), 14):
            for api in requests:
                error = await self._send(api, by)
                session.error(error, model.error(api, by), f"{api} of {by} in a group that is {state}: {model}")

    async def _send(self, api: str, by: Identity) -> int:
        who: dict[str, Any] = {"member_id": by.member_id, "group_instance_id": by.instance}
        if api == "OffsetCommit":
            place, who["generation_id_or_member_epoch"] = (self._topic, 0), by.generation
            return (await commit(self._group, {place: 5}, **who))[place]
        if api == "TxnOffsetCommit":
            offsets = {(self._topic, 0): 6}
            (error,) = await self._producer.commit_offsets(self._group, offsets, generation_id=by.generation, **who)
            return error
        return int((await self._group.ask(api, generation_id=by.generation, **who)).error_code)


def _drawn(session: Session, identities: list[Identity], count: int) -> list[Identity]:
    """Return some of the identities, each at most once."""
    left, found = list(identities), list[Identity]()
    while left and len(found) < count:
        found.append(left.pop(session.draw(len(left))))
    return found


@fields("OFF-3", "TXN-20", "FLD-8")
async def transactional_commits_to_unknown_groups(session: Session) -> None:
    """A commit in a transaction to an unknown group is refused with a generation, and creates the group without one."""
    topic = await session.create_topic("none")
    group = await Group.found(session)
    producer = await Transactional(session).begin()
    session.ok(await producer.add_offsets(group.name), "AddOffsetsToTxn")
    for generation, member_id, expected in ((3, "m", E.ILLEGAL_GENERATION), (0, "", E.ILLEGAL_GENERATION)):
        found = await producer.commit_offsets(group, {(topic, 0): 4}, generation_id=generation, member_id=member_id)
        session.equal(found, {expected}, f"the errors of a commit of generation {generation} to an unknown group")
    session.equal(await producer.commit_offsets(group, {(topic, 0): 4}), {0}, "the errors of TxnOffsetCommit")
    await producer.ended(commit=True)
