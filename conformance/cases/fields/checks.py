"""Checks of what a broker stores after a row: each takes the world, the sent item or request, and its own arguments."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from highwater.conformance.cases.fields.receivers import transactional_id
from highwater.conformance.cases.fields.world import World
from highwater.conformance.cases.support.admin import config, describe_configs
from highwater.conformance.cases.support.committed_offsets import committed_topics
from highwater.conformance.cases.support.transactions import COMMIT, Transactional, describe_transaction
from highwater.conformance.client.requests import request
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure
from highwater.conformance.models.acls import ANYTHING, TOPIC
from highwater.reference.wire.errors import ErrorCode

EXACT: Final = 0
RESTORED: Final[Mapping[str, Callable[[str], str]]] = {"upper": str.lower, "blank": str.strip}


def eventually(world: World, what: str, expected: Any, find: Callable[[], Any]) -> None:
    """Check a value that may take a moment to become the expected one; the failure has the last value."""
    found = list[Any]()

    def is_expected() -> bool:
        found[:] = [find()]
        return bool(found == [expected])

    with suppress(TargetFailure):
        world.cluster.eventually(what, is_expected)
    expect(what, str(expected), str(found[0]) if found else "nothing")


# -- topics and settings -------------------------------------------------------------------------------


def new_topic_has(world: World, topic: Any, name: str, value: str) -> None:
    """Check the value of a setting of a new topic."""

    def is_known() -> bool:
        return not describe_configs(world.controller, topic["name"], [name]).error_code

    world.cluster.eventually("the new topic", is_known)
    expect(f"{name} of the topic", value, config(world.controller, topic["name"], name).value)


def new_topic_is_led_by(world: World, topic: Any, *brokers: str) -> None:
    """Check the first replicas of the partitions of a new topic."""
    world.cluster.topic(topic["name"])
    found = only(world.cluster.connect().metadata(topic["name"]).topics)
    first = {part.partition_index: part.replica_nodes[0] for part in found.partitions}
    expected = {number: world.node(broker) for number, broker in enumerate(brokers)}
    expect("partitions and their first replicas", str(expected), str(dict(sorted(first.items()))))


def topic_has(world: World, sent: Any, name: str, value: str) -> None:
    """Check that a setting of the topic of the row gets this value."""
    topic = world.configured(0)
    world.cluster.eventually(f"{name} to be {value}", lambda: config(world.controller, topic, name).value == value)


def topic_exists(world: World, item: Any, changed: str) -> None:
    """Check that the topic whose name a row has changed was not deleted."""
    expect("the other topic exists", True, world.exist(RESTORED[changed](item["name"])))


def replicas_stay(world: World, sent: Any) -> None:
    """Check that the replica of each partition is where it was."""
    found = world.cluster.describe(world.topic.name)
    replicas = {part.replica_nodes for part in found.partitions} if found else set()
    expect("replicas of the partitions", str({(world.node("1"),)}), str(replicas))


# -- groups --------------------------------------------------------------------------------------------


def offset_is(world: World, sent: Any, offset: int, epoch: int, metadata: str) -> None:
    """Check what is committed for the first partition."""
    expect("offset, leader epoch and metadata", (offset, epoch, metadata), _committed(world))


def offset_becomes(world: World, sent: Any, offset: int, epoch: int, metadata: str) -> None:
    """Commit the transaction of the last producer, and check what it has committed for the first partition."""
    if world.last_producer is not None:
        world.last_producer.end(commit=COMMIT)
    eventually(world, "offset, leader epoch and metadata", (offset, epoch, metadata), lambda: _committed(world))


def _committed(world: World) -> tuple[int, int, str]:
    part = only(only(committed_topics(world.coordinator, world.group, world.part(0))).partitions)
    return part.committed_offset, part.committed_leader_epoch, part.metadata


def member_stays(world: World, sent: Any) -> None:
    """Check that the member of the stable group is still in it."""
    expect("error code of the heartbeat of the member", 0, world.member.heartbeat_error())


def consumer_stays(world: World, sent: Any) -> None:
    """Check that the member of the consumer group is still in it, with its epoch."""
    epoch = world.consumer.epoch
    reply = world.consumer.heartbeat()
    expect("error code and epoch of the member", (0, epoch), (reply.error_code, reply.member_epoch))


# -- transactions --------------------------------------------------------------------------------------


def _transaction(world: World, sent: Any) -> Any:
    return describe_transaction(Transactional(world.cluster, transactional_id(sent) or ""))


def transaction_is(world: World, sent: Any, state: str) -> None:
    """Check state and producer epoch of a new transactional id."""
    found = _transaction(world, sent)
    expect("state and epoch of the transaction", (state, 0), (found.transaction_state, found.producer_epoch))


def transaction_stays(world: World, sent: Any, state: str) -> None:
    """Check the state of a new producer, unless a row has changed its transactional id."""
    name = transactional_id(sent) or ""
    if name == name.strip().lower() != "":
        transaction_is(world, sent, state)


def transaction_contains(world: World, sent: Any, *partitions: int) -> None:
    """Check the partitions of the transaction of a request."""
    topics = _transaction(world, sent).topics
    expect("partitions of the transaction", list(partitions), sorted(n for topic in topics for n in topic.partitions))


def timeout_is_as_sent(world: World, sent: Any) -> None:
    found = _transaction(world, sent).transaction_timeout_ms
    expect("timeout of the transactional id", sent.transaction_timeout_ms, found)


# -- users, quotas and access control lists ------------------------------------------------------------


def quotas_are(world: World, item: Any, *quotas: list[Any]) -> None:
    """Check the quotas of the entity of an item, which has one part."""
    ((kind, name),) = item["entity"]
    sent = request("DescribeClientQuotas", components=[[kind, EXACT, name]], strict=True)

    def find() -> dict[str, float]:
        entries = world.broker.call(sent).entries or ()
        return dict(sorted((value.key, value.value) for entry in entries for value in entry.values))

    eventually(world, "quotas of the entity", dict(quotas), find)


def credentials_are(world: World, item: Any, count: int) -> None:
    """Check the number of credentials of the user of an item."""
    sent = request("DescribeUserScramCredentials", users=[item["name"]])

    def find() -> tuple[Any, ...]:
        return tuple((found.error_code, len(found.credential_infos)) for found in world.broker.call(sent).results)

    expected = ((0 if count else int(ErrorCode.RESOURCE_NOT_FOUND), count),)
    eventually(world, "error code and credentials of the user", expected, find)


def entries_are(world: World, item: Any, count: int) -> None:
    """Check the number of entries of the resource of an item."""
    named = {"resource_type_filter": TOPIC, "resource_name_filter": item["resource_name"]}
    sent = request("DescribeAcls", **ANYTHING | named)
    eventually(
        world,
        "entries of the resource",
        count,
        lambda: sum(len(each.acls) for each in world.broker.call(sent).resources),
    )


CHECKS: Final[Mapping[str, Callable[..., None]]] = {
    each.__name__: each
    for each in (
        *(new_topic_has, new_topic_is_led_by, topic_has, topic_exists, replicas_stay, offset_is, offset_becomes),
        *(member_stays, consumer_stays, transaction_is, transaction_stays, transaction_contains, timeout_is_as_sent),
        *(quotas_are, credentials_are, entries_are),
    )
}
