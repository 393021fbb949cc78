"""What the rows of a case act on: topics, groups, members, producers and users, created when a row first names them.

A text that begins with `$` in a table names an attribute of the world, or one of those that each request has for
itself (`values.py`). What a case `needs` is created before it begins.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

from highwater.conformance.cases.support.acls import NOT_IN_CHARGE
from highwater.conformance.cases.support.admin import controller, create, create_error, describe_configs, new_topic
from highwater.conformance.cases.support.committed_offsets import OFFSETS_TOPIC, commit
from highwater.conformance.cases.support.consumer_members import ConsumerGroup, ConsumerMember
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.cases.support.transactions import COMMIT, TIMEOUT_MS, Transactional
from highwater.conformance.client.broker import (
    TOPIC_ID_SINCE,
    Broker,
    Topic,
    batch,
)
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import API_BY_NAME, request
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.conformance.models.acls import ANYTHING, TOPIC

T = TypeVar("T")
PARTITIONS: Final = 3
RECORDS: Final = 3
OFFSET: Final = 5
POOL: Final = 8
TRIES: Final = 60
"""So many names are tried until one has the right coordinator."""
ABSENT_PRODUCER: Final = 10**15
USER, CLIENT = "user", "client-id"
SCRAM_MECHANISMS: Final = (1, 2)
QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
ALIEN: Final = "User:hw-absent"
"""A principal that no connection of the suite has."""
CONFIGURED: Final[dict[str, str | None]] = {"cleanup.policy": "compact,delete", "delete.retention.ms": "12345"}


@dataclass
class World:
    """One cluster, and what a case has there."""

    cluster: Cluster
    users: list[str] = field(default_factory=list)
    last_producer: Transactional | None = None
    _pool: list[str] = field(default_factory=list)
    _written: set[int] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.cycle(range(1, PARTITIONS)))

    def next_number(self) -> int:
        """Return the number of the partition or topic of the next ordinary item; rows have 0."""
        return next(self._numbers)

    # -- brokers -------------------------------------------------------------------------------------

    @cached_property
    def broker(self) -> Broker:
        return self.cluster.connect()

    @cached_property
    def controller(self) -> Broker:
        return controller(self.cluster)

    @cached_property
    def controller_id(self) -> str:
        """Return the id of the broker that gets the requests for the controller, as a name."""
        return next(
            str(node) for node, each in self.cluster.target.addresses.items() if each == self.controller.address
        )

    @cached_property
    def broker_elsewhere(self) -> str:
        """Return the id of another broker."""
        self.cluster.need_brokers(2)
        return next(str(node) for node in self.cluster.target.addresses if str(node) != self.controller_id)

    def node(self, number: str) -> int:
        """Return the id of the first broker, the second one and so on; raises Unsupported if there are fewer."""
        if int(number) > 1:
            self.cluster.need_brokers(int(number))
        return sorted(self.cluster.target.addresses)[int(number) - 1]

    # -- topics --------------------------------------------------------------------------------------

    @cached_property
    def topics(self) -> list[Topic]:
        """Return three topics of three partitions: the first is for rows, the others for ordinary items."""
        return [self.topic, self._new_topic(), self._new_topic()]

    @cached_property
    def topic(self) -> Topic:
        """Return a topic of three partitions that one broker leads: the first is for rows."""
        return self._new_topic()

    def _new_topic(self) -> Topic:
        return self.cluster.create_topic(partitions=PARTITIONS, assignment=[self.node("1")])

    def numbered_topic(self, number: int) -> Topic:
        return self.topics[number]

    @cached_property
    def topic_id(self) -> bytes:
        return self.broker.topic_id(self.topic)

    @cached_property
    def leader(self) -> Broker:
        return self.cluster.leader(self.topic)

    def part(self, partition: int) -> Topic:
        return replace(self.topic, partition=partition)

    @cached_property
    def topic_of_last_broker(self) -> Topic:
        """Return a topic whose replica only the last broker has."""
        self.cluster.need_brokers(2)
        return self.cluster.create_topic(assignment=[max(self.cluster.target.addresses)])

    @cached_property
    def split_topic(self) -> str:
        """Return the name of an empty topic; the last broker leads its first partition, the first one the second."""
        name, brokers = self.cluster.topic_name(), [[self.node("2")], [self.node("1")]]
        expect("error code of CreateTopics", 0, create_error(self.cluster, new_topic(name, -1, -1, assignment=brokers)))
        return self.cluster.served_topic(name).name

    @cached_property
    def compacted_topic(self) -> Topic:
        """Return a topic of the same leader whose records are compacted only."""
        configs = {"cleanup.policy": "compact"}
        return self.cluster.create_topic(assignment=[self.node("1")], configs=configs)

    @cached_property
    def led_offsets(self) -> int:
        """Return the number of a partition of the offsets of groups that the leader of the topic leads."""
        self.coordinator  # noqa: B018 - the topic exists when the first group has a coordinator
        found = self.cluster.describe(OFFSETS_TOPIC)
        parts = found.partitions if found else ()
        led = [part.partition_index for part in parts if part.leader_id == self.topic.leader_id]
        if not led:
            raise Unsupported(f"the leader of the topic leads no partition of {OFFSETS_TOPIC}")
        return led[0]

    def small_topic(self) -> str:
        """Return the name of a new topic with two partitions."""
        return self.cluster.create_topic(partitions=2, replicas=1).name

    def existing(self) -> str:
        """Return the name of a topic that exists, and is for one row; several are created at once."""
        if not self._pool:
            names = [self.cluster.topic_name() for _ in range(POOL)]
            found = create(self.cluster, *(new_topic(name) for name in names))
            expect("error codes of CreateTopics", [0] * POOL, [result.error_code for result in found.values()])
            self.cluster.eventually("the topics at the controller", lambda: self.exist(*names))
            self._pool = names
        return self._pool.pop()

    def id_of(self, name: str) -> bytes:
        """Return the id of a topic that exists."""
        return bytes(only(self.controller.metadata(name, version=TOPIC_ID_SINCE).topics).topic_id)

    def exist(self, *names: str) -> bool:
        return not any(found.error_code for found in self.controller.metadata(*names).topics)

    @cached_property
    def configured_topics(self) -> list[str]:
        """Return three topics with settings of their own: the first is for rows."""
        names = [self.cluster.topic_name() for _ in range(PARTITIONS)]
        created = create(self.cluster, *(new_topic(name, configs=CONFIGURED) for name in names))
        expect("error codes of CreateTopics", [0] * len(created), [each.error_code for each in created.values()])

        def are_known() -> bool:
            return not any(describe_configs(self.controller, name, []).error_code for name in names)

        self.cluster.eventually("the new topics", are_known)
        return names

    def configured(self, number: int) -> str:
        return self.configured_topics[number]

    @cached_property
    def folder(self) -> str:
        """Return the path of the folder that has the replicas of the topic."""
        named = {"topic": self.topic.name, "partitions": [0]}
        return next(
            str(found.log_dir)
            for found in self.leader.call(request("DescribeLogDirs", topics=[named])).results
            if any(topic.name == self.topic.name for topic in found.topics)
        )

    @cached_property
    def records(self) -> bool:
        """Write a batch to each partition: a broker may learn one after another which ones it leads."""

        def are_written() -> bool:
            for partition in sorted(set(range(PARTITIONS)) - self._written):
                if not self.leader.produce(self.topic, batch(*[b"v"] * RECORDS), partition=partition).error_code:
                    self._written.add(partition)
            return len(self._written) == PARTITIONS

        return self.cluster.eventually("records in every partition", are_written)

    # -- groups --------------------------------------------------------------------------------------

    @cached_property
    def group(self) -> str:
        return self.cluster.group()

    @cached_property
    def coordinator(self) -> Broker:
        return self.cluster.coordinator(self.group)

    @cached_property
    def offsets(self) -> bool:
        """Commit an offset for each partition of the topic, which creates the group, without members."""
        parts, coordinator = [self.part(number) for number in range(PARTITIONS)], self.coordinator

        def are_committed() -> bool:
            return not any(commit(coordinator, self.group, part, OFFSET) for part in parts)

        return self.cluster.eventually("offsets of the group", are_committed)

    def group_with_offset(self) -> str:
        """Return the group, after a commit that creates it again if a request has deleted it."""
        commit(self.coordinator, self.group, self.part(0), OFFSET)
        return self.group

    def _new_group(self, *, beside: bool) -> str:
        """Return a new group of the same coordinator, or of another one."""
        names = (self.cluster.group() for _ in range(TRIES))
        return first(name for name in names if self._coordinates(self.cluster.coordinator(name)) == beside)

    def _coordinates(self, broker: Broker) -> bool:
        return broker.address == self.coordinator.address

    def group_beside(self) -> str:
        """Return a new group of the same coordinator, with an offset."""
        name = self._new_group(beside=True)
        expect("error code of OffsetCommit", 0, commit(self.coordinator, name, self.part(0), OFFSET))
        return name

    @cached_property
    def groups(self) -> list[str]:
        """Return three groups of one coordinator, each with an offset: the first is for rows."""
        return [self.group, self.group_beside(), self.group_beside()]

    def numbered_group(self, number: int) -> str:
        return self.groups[number]

    @cached_property
    def unknown_group(self) -> str:
        return self._new_group(beside=True)

    @cached_property
    def group_elsewhere(self) -> str:
        self.cluster.need_brokers(2)
        return self._new_group(beside=False)

    @cached_property
    def group_of_member(self) -> str:
        """Return a stable group of the same coordinator."""
        name = self._new_group(beside=True)
        GroupDriver(self.cluster, name).stable_member()
        return name

    @property
    def session_timeout_ms(self) -> int:
        return GroupDriver(self.cluster, "").session_ms()

    @cached_property
    def member(self) -> Member:
        """Return the only member of a stable group."""
        return self.stable_member()

    def stable_member(self) -> Member:
        """Return the only member of a new group."""
        return GroupDriver(self.cluster, self.cluster.group()).stable_member()

    def joined_member(self) -> Member:
        """Return the only member of a new group, which has no assignment yet."""
        member, reply = GroupDriver(self.cluster, self.cluster.group()).join()
        expect("error code of the join", 0, reply.error_code)
        return member

    @cached_property
    def consumer(self) -> ConsumerMember:
        """Return the only member of a consumer group, which is subscribed to a topic."""
        return ConsumerGroup(self.cluster, self.cluster.create_topic()).joined_member()

    # -- transactions --------------------------------------------------------------------------------

    def new_producer(self) -> Transactional:
        """Return a new producer without a transaction."""
        return Transactional.initialize(self.cluster)

    def open_producer(self) -> Transactional:
        """Return a new producer whose transaction contains the last partition."""
        producer = self.new_producer()
        producer.begin(self.part(PARTITIONS - 1))
        return producer

    def committed_producer(self) -> Transactional:
        """Return a producer whose transaction was committed in a version that keeps the epoch."""
        producer = self.open_producer()
        producer.end(commit=COMMIT)
        return producer

    def adding_producer(self) -> Transactional:
        """Return a new producer with an open transaction to which the group is added."""
        self.last_producer = self.new_producer()
        expect("error code of AddOffsetsToTxn", 0, self.last_producer.add_offsets(self.group))
        return self.last_producer

    @cached_property
    def opened(self) -> Transactional:
        return self.open_producer()

    def _new_transactional(self, *, beside: bool) -> Transactional:
        """Return a producer that has no id yet, of the coordinator of the open transaction or of another one."""
        found = (Transactional(self.cluster) for _ in range(TRIES))
        address = self.opened.coordinator.address
        return first(each for each in found if (each.coordinator.address == address) == beside)

    def _open_transaction(self, *, beside: bool) -> str:
        producer = self._new_transactional(beside=beside)
        expect("error code of InitProducerId", 0, producer.init().error_code)
        producer.begin(self.part(PARTITIONS - 1))
        return producer.id

    @cached_property
    def transactions(self) -> list[str]:
        """Return three open transactions of one coordinator: the first is for rows."""
        return [self.opened.id, *(self._open_transaction(beside=True) for _ in range(2))]

    def numbered_transaction(self, number: int) -> str:
        return self.transactions[number]

    @cached_property
    def unknown_transaction(self) -> str:
        return self._new_transactional(beside=True).id

    @cached_property
    def transaction_elsewhere(self) -> str:
        self.cluster.need_brokers(2)
        return self._open_transaction(beside=False)

    def numbered_producer(self, number: int) -> int:
        """Return a producer id that no producer has."""
        return ABSENT_PRODUCER + number

    @cached_property
    def empty(self) -> Transactional:
        return self.new_producer()

    @property
    def transactional_ids(self) -> str:
        """Return a pattern for the open and the empty transaction."""
        return f"{self.opened.id}|{self.empty.id}"

    @cached_property
    def writers(self) -> Transactional:
        """Return a producer that has written to all partitions but the first one."""
        self.leader.version_of(API_BY_NAME["DescribeProducers"].request)
        producer = self.new_producer()
        for partition in range(1, PARTITIONS):
            producer.begin(self.part(partition))
            producer.write(self.part(partition), 0)
        return producer

    @property
    def transaction_timeout_ms(self) -> int:
        return self.cluster.within(TIMEOUT_MS, at_most="transaction_max_timeout_ms")

    @property
    def longest_metadata(self) -> str:
        return "m" * self.cluster.setting("offset_metadata_max_bytes")

    # -- users, quotas and access control lists ------------------------------------------------------

    def user(self) -> str:
        """Return a new name of a user, whose quotas, credentials and lists `clean_up` deletes."""
        self.users.append(self.cluster.name("u"))
        return self.users[-1]

    @cached_property
    def acls(self) -> bool:
        """Raise Unsupported without an authorizer that the connection may change."""
        named = {"resource_type_filter": TOPIC, "resource_name_filter": "hw-none", "principal_filter": "User:hw-none"}
        if self.controller.call(request("DescribeAcls", **ANYTHING | named)).error_code in NOT_IN_CHARGE:
            raise Unsupported("no authorizer whose lists this connection may change")
        return True

    def clean_up(self, *kinds: str) -> None:
        """Delete what rows have left of these kinds; errors are ignored."""
        for kind in kinds:
            with suppress(TargetFailure, Unsupported):
                CLEANERS[kind](self)


def first(found: Iterator[T]) -> T:
    """Return the first element; raises Unsupported if there is none."""
    for each in found:
        return each
    raise Unsupported("all names have the same coordinator")


def delete_quotas(world: World) -> None:
    removed = [[key, 0.0, True] for key in QUOTAS]
    entries = [{"entity": [[kind, name]], "ops": removed} for kind in (USER, CLIENT) for name in world.users]
    world.controller.call(request("AlterClientQuotas", entries=entries))


def delete_credentials(world: World) -> None:
    for mechanism in SCRAM_MECHANISMS:
        deletions = [[name, mechanism] for name in world.users]
        world.controller.call(request("AlterUserScramCredentials", deletions=deletions))


def delete_acls(world: World) -> None:
    named = {"resource_type_filter": TOPIC, "principal_filter": ALIEN}
    filters = [ANYTHING | named | {"resource_name_filter": name} for name in world.users]
    world.controller.call(request("DeleteAcls", filters=filters))


CLEANERS: Final[Mapping[str, Callable[[World], None]]] = {
    "quotas": delete_quotas, "credentials": delete_credentials, "acls": delete_acls,
}  # fmt: skip
