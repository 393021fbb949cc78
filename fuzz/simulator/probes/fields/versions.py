"""Probes of what changes with the version of a request: joining and leaving, FindCoordinator, ApiVersions."""

from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group, Member, beat, rejoin, sync_all
from highwater.fuzz.simulator.probes.client.requests import VERSIONS, request
from highwater.fuzz.simulator.probes.client.session import GROUP, TRANSACTION, E, Session
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.offsets import committed_ok
from highwater.reference.wire.registry import APIS

NEWEST: Final = {"JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4, "LeaveGroup": 5}
ID_REQUIRED_SINCE: Final = 4  # KIP-394
INSTANCES_SINCE: Final = 5  # KIP-345
NULL_NAME_SINCE: Final = 7
LEAVE_SEVERAL_SINCE: Final = 3
OF_SYNC_SINCE: Final = 5  # KIP-559
LAST_FIND_COORDINATOR: Final = 4


# -- groups ------------------------------------------------------------------------------------------------------------


@fields("GRP-2", "GRP-3", "GRP-5", "GRP-10", "GRP-15", "GRP-41", "GRP-68")
async def members_of_every_version(session: Session) -> None:
    """A new member joins at once below JoinGroup 4, with an instance id, and else in two steps; all can leave."""
    topic = await session.create_topic("keeps")
    for version in range(NEWEST["JoinGroup"] + 1):
        group = await Group.found(session, f"v{version}")
        await committed_ok(group, {(topic, 0): 1})  # else the empty group may be removed at any time
        await _refused_joins(group, version)
        member = group.member("a")
        await _joined(member, version)
        await _lives(member, version)
        session.equal(await _left(member, version), E.NONE, f"the error of LeaveGroup by a member of version {version}")
        found = await _left(member, version)
        session.error(found, E.UNKNOWN_MEMBER_ID, f"a second LeaveGroup by a member of version {version}")
        if version >= INSTANCES_SINCE:
            static = group.member("a", instance="one")
            await static.end_join(static.begin_join(version))
            session.expect(static.id, f"a static member of JoinGroup {version} has no member id")


async def _joined(member: Member, version: int) -> None:
    """Join as a new dynamic member, in as many steps as the version has."""
    session = member.session
    if version >= ID_REQUIRED_SINCE:
        answer = await member.begin_join(version)
        what = f"JoinGroup {version} of a new member"
        session.error(answer.error_code, E.MEMBER_ID_REQUIRED, what)
        session.expect(answer.member_id, f"{what} gets no member id")
        session.equal(
            _no_generation(answer), (-1, _no_name(version), ()), f"generation, protocol and members of {what}"
        )
        member.id = answer.member_id
    await member.end_join(member.begin_join(version))
    joined = member.joined
    found = joined.generation_id, joined.protocol_name, joined.leader, [each.member_id for each in joined.members]
    session.equal(found, (1, "range", member.id, [member.id]), f"the answer to JoinGroup {version} of the only member")


async def _refused_joins(group: Group, version: int) -> None:
    """Errors of JoinGroup, which name no protocol."""
    session = group.session
    for fields_, error in (
        ({"session_ms": 1}, E.INVALID_SESSION_TIMEOUT), ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL), ({}, E.UNKNOWN_MEMBER_ID),
    ):  # fmt: skip
        member = group.member("a", **fields_)
        member.id = "" if fields_ else "stranger"
        answer = await member.begin_join(version)
        session.error(answer.error_code, error, f"JoinGroup {version} with {fields_ or 'an unknown member id'}")
        session.equal(
            _no_generation(answer), (-1, _no_name(version), ()),
            f"generation, protocol and members of a refused JoinGroup {version}",
        )  # fmt: skip


def _no_generation(answer: Any) -> tuple[int, str | None, tuple[Any, ...]]:
    return answer.generation_id, answer.protocol_name, tuple(answer.members)


def _no_name(version: int) -> str | None:
    return None if version >= NULL_NAME_SINCE else ""


async def _lives(member: Member, version: int) -> None:
    """Send SyncGroup, Heartbeat and JoinGroup as a client of the same time does."""
    session, sync = member.session, min(version, NEWEST["SyncGroup"])
    names = {"protocol_type": "consumer", "protocol_name": "range"} if sync >= OF_SYNC_SINCE else {}
    answer = await member.begin_sync({member.id: b"all"}, sync, **names)
    session.equal((answer.error_code, answer.assignment), (0, b"all"), f"error and assignment of SyncGroup {sync}")
    heartbeat = min(version, NEWEST["Heartbeat"])
    for generation, error in ((member.generation, E.NONE), (member.generation + 1, E.ILLEGAL_GENERATION)):
        found = await member.group.ask("Heartbeat", heartbeat, member_id=member.id, generation_id=generation)
        session.error(found.error_code, error, f"Heartbeat {heartbeat} of generation {generation}")
    before = member.generation
    await member.end_join(member.begin_join(version))
    session.equal(member.generation, before + 1, f"the generation after JoinGroup {version} of the leader")


async def _left(member: Member, version: int) -> int:
    """Return the error of LeaveGroup for a member: of the whole below version 3, else of the member."""
    version = min(version, NEWEST["LeaveGroup"])
    if version < LEAVE_SEVERAL_SINCE:
        return int((await member.group.ask("LeaveGroup", version, member_id=member.id)).error_code)
    gone = [{"member_id": member.id, "group_instance_id": member.instance}]
    answer = await member.group.ask("LeaveGroup", version, members=gone)
    member.session.ok(answer.error_code, f"LeaveGroup {version}")
    (one,) = answer.members
    member.session.equal((one.member_id, one.group_instance_id), (member.id, member.instance), "the member that left")
    return int(one.error_code)


@fields("GRP-10", "GRP-12", "GRP-13", "GRP-41")
async def members_of_different_versions(session: Session) -> None:
    """Clients of all times are members of one group; in JoinGroup 0 the session timeout is that of the rebalance."""
    group = await Group.found(session)
    old, new = group.member("a", session_ms=900, rebalance_ms=-1), group.member("a", rebalance_ms=300)
    versions = {old: session.one_of(0, 1, 2, 3) if session.draw(2) else 0, new: session.one_of(4, 6, 9)}
    await _joined(old, versions[old])
    await sync_all([old])
    answer = await new.begin_join(versions[new])
    session.error(answer.error_code, E.MEMBER_ID_REQUIRED, "JoinGroup of a new member beside an older one")
    new.id = answer.member_id
    pending = new.begin_join(versions[new])
    await session.sleep(400)  # longer than the rebalance timeout of the new member
    session.expect(not pending.done, "a rebalance does not wait for the session timeout of a client of JoinGroup 0")
    await old.end_join(old.begin_join(versions[old]))
    await new.end_join(pending)
    session.equal(old.generation, new.generation, "the generations of a member of each version")
    await sync_all([old, new])
    await beat([old, new])
    await rejoin(*sorted((old, new), key=lambda each: not each.leads))
    await sync_all([old, new])
    for member in (new, old):
        session.equal(await _left(member, versions[member]), E.NONE, "the error of LeaveGroup")


# -- coordinators ------------------------------------------------------------------------------------------------------


@fields("GRP-1", "GRP-52", "TXN-21")
async def coordinators_of_several_keys(session: Session) -> None:
    """Every broker finds the same coordinator for a key, alone and among others, with its address."""
    addresses = {b.node_id: (b.host, b.port) for b in (await session.ask(1, request("Metadata", topics=[]))).brokers}
    for kind in (GROUP, TRANSACTION):
        keys = [f"{session.name}-key{number}" for number in range(7)]
        alone = {key: await session.coordinator(key, kind) for key in keys}
        for broker_id in session.brokers:
            order = [*shuffled(session, keys), session.one_of(*keys)][session.draw(4) :]
            answer = await session.ask(broker_id, request("FindCoordinator", coordinator_keys=order, key_type=kind), 4)
            found = [(each.key, each.error_code, each.node_id, each.host, each.port) for each in answer.coordinators]
            expected = [(key, 0, alone[key], *addresses[alone[key]]) for key in order]
            session.equal(found, expected, f"the coordinators of keys of type {kind}")
            for version in range(kind, LAST_FIND_COORDINATOR):  # version 0 finds groups only
                key = session.one_of(*keys)
                answer = await session.ask(broker_id, request("FindCoordinator", key=key, key_type=kind), version)
                one = answer.error_code, answer.node_id, answer.host, answer.port
                session.equal(
                    one, (0, alone[key], *addresses[alone[key]]), f"the coordinator of FindCoordinator {version}"
                )
    for kind in (7, -1):
        for version in range(1, LAST_FIND_COORDINATOR + 1):
            several = version >= LAST_FIND_COORDINATOR
            body = request(
                "FindCoordinator", key_type=kind, **({"coordinator_keys": ["a", "b"]} if several else {"key": "a"})
            )
            answer = await session.ask(1, body, version)
            errors = [each.error_code for each in answer.coordinators] if several else [answer.error_code]
            session.equal(set(errors), {E.INVALID_REQUEST}, f"the errors of FindCoordinator {version} for type {kind}")
    answer = await session.ask(2, request("FindCoordinator", coordinator_keys=[], key_type=GROUP), 4)
    session.equal(len(answer.coordinators), 0, "the coordinators of no keys")


# -- ApiVersions -------------------------------------------------------------------------------------------------------

SOFTWARE: Final[tuple[tuple[str, bool], ...]] = (
    ("apache-kafka-java", True), ("4.3.0", True), ("a", True), ("7", True), ("Z-.-9", True), ("", False), (" ", False),
    ("-a", False), ("a-", False), (".1", False), ("1.", False), ("a b", False), ("1_0", False), ("a/b", False),
    ("a\n", False), ("ä", False), ("a" * 300, True),
)  # fmt: skip
"""Names and versions of a client's software, and whether they are legal (KIP-511)."""
NAMES_SINCE: Final = 3


@fields("API-1", "API-4", "API-5", "API-11", "API-12")
async def versions_of_the_apis(session: Session) -> None:
    """Name and version of the client's software are checked alike; every answer has the same APIs, each once."""
    seen: list[Any] = []
    for name, version in [(text, "1.0") for text, _ in SOFTWARE] + [("client", text) for text, _ in SOFTWARE]:
        legal = dict(SOFTWARE).get(name, True) and dict(SOFTWARE).get(version, True)
        asked = request("ApiVersions", client_software_name=name, client_software_version=version)
        number = session.one_of(3, 4)
        answer = await session.ask(session.one_of(*session.brokers), asked, number)
        expected = E.NONE if legal else E.INVALID_REQUEST
        session.error(answer.error_code, expected, f"ApiVersions {number} of the software {name!r} {version!r}")
        seen += [answer.api_keys] if legal else []
    for number in range(NAMES_SINCE):
        for broker_id in session.brokers:
            answer = await session.ask(broker_id, request("ApiVersions"), number)
            session.ok(answer.error_code, f"ApiVersions {number}")
            seen.append(answer.api_keys)
    ranges = [sorted((each.api_key, each.min_version, each.max_version) for each in keys) for keys in seen]
    session.equal(ranges, ranges[:1] * len(ranges), "the APIs of every answer")
    served = {key: (first, last) for key, first, last in ranges[0]}
    session.equal(len(served), len(ranges[0]), "the number of different API keys")
    session.expect(all(0 <= first <= last for first, last in served.values()), f"the ranges of versions are {served}")
    keys = {api.name: api.key for api in APIS.values()}
    missing = {
        name for name, version in VERSIONS.items() if not served[keys[name]][0] <= version <= served[keys[name]][1]
    }
    session.equal(missing, set(), "the APIs that the probes use in a version that is not listed")
