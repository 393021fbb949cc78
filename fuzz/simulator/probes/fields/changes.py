"""Probes of what brokers describe, and of topics that Metadata creates, that are deleted or change their leader."""

from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group
from highwater.fuzz.simulator.probes.client.requests import errors_of, fetch_request, of_topics, request
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.fetch import move_leader
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.topics import UNKNOWN_ID, delete, exists

ON_ONE: Final = [[1, 2, 3]]
WAIT_MS: Final = 9_000
SOON_MS: Final = 150
GOES: Final = frozenset({
    E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH,
})  # fmt: skip
"""Errors of a Fetch whose partition is deleted or moves while it waits; 0 is that of the other partition."""
NOT_REQUESTED: Final = -(1 << 31)
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS: Final = sum(1 << bit for bit in (3, 6, 8))
"""All operations that a resource supports, as bits (AclEntry.supportedOperations): without ACLs all are allowed."""


# -- topics that come and go -------------------------------------------------------------------------------------------


@fields("MD-2", "MD-3", "MD-4", "MD-18", "ADM-20")
async def creations_by_metadata(session: Session) -> None:
    """Metadata creates a missing topic whenever the request allows it, also one that was deleted."""
    at = session.one_of(*session.brokers)
    names = [f"{session.name}-{suffix}" for suffix in ("auto", "too")]
    wrong = f"{session.name}/wrong"
    for step in range(3):
        await _request(session, at, [*names, wrong], E.UNKNOWN_TOPIC_OR_PARTITION, create=False)
        await session.sleep(200)
        for name in names:
            session.expect(not await exists(session, name), f"{name} exists, which no request allowed")
        chosen = names[: 1 + step % 2]
        await _request(session, at, [*chosen, wrong], E.UNKNOWN_TOPIC_OR_PARTITION, create=True)
        for name in chosen:
            await session.healthy(name, session.default_partitions)
            replicas = {len(part.replica_nodes) for part in (await session.metadata(name)).partitions}
            session.equal(replicas, {len(session.brokers)}, f"the number of replicas of {name}")
            await session.values(name, b"v")
            session.equal(len(await session.read(name)), 1, f"the number of records of {name}")
            await delete(session, name)


async def _request(session: Session, broker_id: int, names: list[str], error: E, *, create: bool) -> None:
    """Request topics by name: the last name is not legal, the others have the error."""
    version = session.one_of(0, 1, 3, 4, 9) if create else session.one_of(4, 6, 9)
    topics = [{"name": name} for name in shuffled(session, names)]
    body = request("Metadata", topics=topics, allow_auto_topic_creation=create)
    found = {each.name: each.error_code for each in (await session.ask(broker_id, body, version)).topics}
    expected = {**dict.fromkeys(names[:-1], error), names[-1]: E.INVALID_TOPIC_EXCEPTION}
    session.equal(found, expected, f"the errors of Metadata {version} with allow_auto_topic_creation={create}")


@fields("FET-30", "FET-8", "ADM-20")
async def waits_that_lose_their_partition(session: Session) -> None:
    """A Fetch that waits is answered at once when its partition is deleted or its broker stops to lead it."""
    other = await session.create_topic("other", assigned=ON_ONE)
    for change in ("moves", "is deleted"):
        topic = await session.create_topic(change.replace(" ", "-"), assigned=ON_ONE)
        epoch = (await session.known(topic)).leader_epoch
        waiting = [
            (version, session.send(1, _waiting(names, more, isolation), version, WAIT_MS + 1_000))
            for names, more, isolation, version in (
                ([topic], {}, 0, 4), ([topic], {}, 1, 8), ([topic], {"current_leader_epoch": epoch}, 0, 9),
                ([other, topic], {}, 0, 10), ([topic, other], {"current_leader_epoch": epoch}, 1, 12),
            )
        ]  # fmt: skip
        await session.sleep(100)
        for version, pending in waiting:
            session.expect(not pending.done, f"a Fetch {version} of partitions without records does not wait")
        if change == "moves":
            await move_leader(session, topic, [2, 3, 1])
        else:
            await delete(session, topic)
        await session.sleep(SOON_MS)
        for version, pending in waiting:
            session.expect(pending.done, f"a Fetch {version} waits on after its partition {change}")
            errors = errors_of(await pending)
            session.expect(errors <= GOES and errors != {0}, f"Fetch {version} after its partition {change}: {errors}")


def _waiting(topics: list[str], of_each: dict[str, Any], isolation: int) -> Any:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    asked = of_topics([(topic, {**part, **(of_each if topic == topics[0] else {})}) for topic in topics], "topic")
    return fetch_request("", {}, topics=asked, max_wait_ms=WAIT_MS, min_bytes=1, isolation_level=isolation)


# -- descriptions ------------------------------------------------------------------------------------------------------


@fields("ADM-38", "MD-5", "MD-6", "MD-7", "MD-8", "MD-11", "MD-12", "MD-13", "MD-17", "MD-19", "MD-20")
async def descriptions_of_the_cluster(session: Session) -> None:
    """Every broker describes all brokers with their racks, and each partition with the same fields in each request."""
    placed = [[1, 2], [3, 1], [2, 3]]
    topic = await session.create_topic("described", assigned=placed)
    group = await Group.found(session)
    racks = dict(zip(session.brokers, session.cluster.settings.racks, strict=True))
    topic_id = bytes((await session.metadata(topic)).topic_id)
    session.expect(topic_id not in {bytes(16), UNKNOWN_ID}, f"the id of {topic} is {topic_id!r}")
    seen: list[Any] = []
    for broker_id in session.brokers:
        seen += await _descriptions(session, broker_id, topic, topic_id, racks)
    session.equal(seen, seen[:1] * len(seen), "the descriptions by name, by id and by page at each broker")
    parts = seen[0]
    session.equal([list(each[2]) for each in parts], placed, f"the replicas of {topic}")
    for number, (leader, epoch, replicas, isr, offline) in enumerate(parts):
        session.equal((set(isr), offline), (set(replicas), ()), f"ISR and offline replicas of {topic}-{number}")
        session.expect(leader in replicas and epoch >= 0, f"the leader of {topic}-{number} is {leader} in {epoch}")
    unknown = request("Metadata", topics=[{"topic_id": UNKNOWN_ID, "name": None}], allow_auto_topic_creation=False)
    answer = await session.ask(1, unknown, 12)
    session.equal([each.error_code for each in answer.topics], [E.UNKNOWN_TOPIC_ID], "the errors for an unknown id")
    offsets = await session.metadata("__consumer_offsets")
    session.equal((offsets.error_code, offsets.is_internal), (0, True), "error and is_internal of __consumer_offsets")
    await _operations(session, topic, group)


async def _descriptions(
    session: Session, broker_id: int, topic: str, topic_id: bytes, racks: dict[int, str]
) -> list[list[Any]]:
    """Return the partitions in Metadata by name and by id, and in DescribeTopicPartitions; check the brokers."""
    found, clusters = [], []
    for asked, version in (({"name": topic}, 9), ({"topic_id": topic_id, "name": None}, 12)):
        answer = await session.ask(broker_id, request("Metadata", topics=[asked]), version)
        (one,) = answer.topics
        session.equal((one.error_code, one.name, one.is_internal), (0, topic, False), f"{topic} in Metadata {version}")
        session.equal(bytes(one.topic_id), topic_id, f"the id of {topic} in Metadata {version}")
        found.append(_parts(one))
        clusters.append(answer)
    pages = await session.ask(broker_id, request("DescribeTopicPartitions", topics=[{"name": topic}]))
    session.equal(bytes(pages.topics[0].topic_id), topic_id, f"the id of {topic} in DescribeTopicPartitions")
    found.append(_parts(pages.topics[0]))
    described = await session.ask(broker_id, request("DescribeCluster"), 0)
    for answer, brokers, key in [(each, each.brokers, "node_id") for each in clusters] + [
        (described, described.brokers, "broker_id")
    ]:
        session.equal({getattr(b, key): b.rack for b in brokers}, racks, "the brokers with their racks")
        session.equal(answer.controller_id, session.cluster.controller(), "the controller")
        session.equal(answer.cluster_id, clusters[0].cluster_id, "the cluster id")
    addresses = [sorted((b.host, b.port) for b in each.brokers) for each in (*clusters, described)]
    session.equal(addresses, addresses[:1] * 3, "the addresses of the brokers")
    session.equal(len(set(addresses[0])), len(racks), "the number of different addresses")
    return found


def _parts(topic: Any) -> list[tuple[Any, ...]]:
    return [
        (p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(sorted(p.isr_nodes)), tuple(p.offline_replicas))
        for p in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    ]


async def _operations(session: Session, topic: str, group: Group) -> None:
    """Authorised operations are all that the resource supports, and only if the request asks for them (MD-9)."""
    for wanted in (False, True):
        body = request(
            "Metadata", topics=[{"name": topic}], include_topic_authorized_operations=wanted,
            include_cluster_authorized_operations=wanted,
        )  # fmt: skip
        answer = await session.ask(1, body, 8)
        cluster = await session.ask(2, request("DescribeCluster", include_cluster_authorized_operations=wanted), 0)
        groups = await group.session.ask(
            group.coordinator, request("DescribeGroups", groups=[group.name], include_authorized_operations=wanted)
        )
        found = (
            answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations,
            cluster.cluster_authorized_operations, groups.groups[0].authorized_operations,
        )  # fmt: skip
        every = (TOPIC_OPERATIONS, CLUSTER_OPERATIONS, CLUSTER_OPERATIONS, GROUP_OPERATIONS)
        session.equal(found, every if wanted else (NOT_REQUESTED,) * 4, f"the operations if requested={wanted}")
