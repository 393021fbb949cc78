"""The cluster that a case tests: connects to brokers, creates topics and groups, and deletes them afterwards."""

import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from highwater.conformance.client.broker import LATEST, AdvertisedVersions, Broker, Topic, now_ms
from highwater.conformance.client.connection import Access, WaitLimit, access_to
from highwater.conformance.client.described import described_settings
from highwater.conformance.client.draws import CONSTANT, Draws
from highwater.conformance.client.exchange import LOST_TAIL, ExchangeLog
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import NoReply, TargetFailure, Unsupported
from highwater.conformance.targets.base import CLOCKS, LINKS, LOST_TAILS, FaultTarget, Target
from highwater.conformance.targets.discovery import brokers_of
from highwater.reference.wire.errors import COORDINATOR_UNAVAILABLE, LEADER_NOT_READY, ErrorCode
from highwater.reference.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from highwater.reference.wire.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from highwater.reference.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

T = TypeVar("T")
POLL_S: Final = 0.05
START_S: Final = 40.0
"""With two of three brokers of Apache Kafka down there is no controller until one of them is back."""
CREATED_S: Final = 15.0
DELETION_TIMEOUT_MS: Final = 3_000
"""Shorter than the reply timeout: the controller answers even if it waits for a stopped broker."""
DESCRIBE_GROUPS: Final = 15
BATCHED_COORDINATORS: Final = 4
TOPICS_BY_STATE: Final = 6
USUAL: Final = (
    ("log_message_timestamp_type", "message.timestamp.type", "CreateTime"),
    ("compression_type", "compression.type", "producer"),
)
"""Settings of brokers, the configuration of topics that they are the default of, and the value that cases expect."""


class Cluster:
    """The target of one case; `close` restarts stopped nodes and deletes topics and groups, unless `keep` is set.

    `prefix` begins the names of its topics and groups, which no other case may use; by default it is random. `draws`
    are the random choices of a walk.
    """

    def __init__(
        self, target: Target, advertised: AdvertisedVersions, *, timeout_s: float = 5.0, keep: bool = False,
        wait_limit: WaitLimit | None = None, whole_log: bool = False, prefix: str = "", draws: Draws = CONSTANT,
    ) -> None:  # fmt: skip
        self.target, self.advertised, self.timeout_s, self.keep = target, advertised, timeout_s, keep
        self.access, self.clock, self.draws = access_to(target), target.transport.clock, draws
        self.wait_limit = wait_limit or WaitLimit()
        self.log = ExchangeLog(whole=whole_log)
        self.notes: list[str] = []  # what the report says of the case if it passes
        self.prefix = f"hw-{prefix or uuid.uuid4().hex[:10]}"
        self._counter = itertools.count(1)
        self._connections: list[Broker] = []
        self._topics: list[str] = []
        self._groups: list[str] = []
        self._stopped_nodes: set[int] = set()
        self._paused_nodes: set[int] = set()
        self._links_are_faulty = False

    # -- brokers -------------------------------------------------------------------------------------

    def connect(
        self, address: str | None = None, timeout_s: float | None = None, access: Access | None = None
    ) -> Broker:
        """Open a connection, by default to the first broker that is up; it is closed at the end of the case."""
        broker = Broker(
            address or self.any_address(), self.advertised, timeout_s=timeout_s or self.timeout_s, log=self.log,
            wait_limit=self.wait_limit, access=replace(access or self.access, transport=self.access.transport),
        )  # fmt: skip
        self._connections.append(broker)
        return broker

    def any_address(self) -> str:
        return next(address for node, address in self.target.addresses.items() if self.is_up(node))

    def need_brokers(self, count: int) -> None:
        if len(self.target.addresses) < count:
            raise Unsupported(f"the case needs {count} brokers, the target has {len(self.target.addresses)}")

    def need(self, capability: str) -> None:
        if capability not in self.target.capabilities:
            raise Unsupported(f"the target has no {capability} capability")

    def setting(self, name: str) -> int:
        """Return a setting of the target: what its file says, else what the broker reports; raises Unsupported."""
        if name in self.target.settings:
            return self.target.settings[name]
        value = self.reported(name)
        if value is None or not value.lstrip("-").isdecimal():
            raise Unsupported(f"the target's {name} is unknown")
        return int(value)

    def within(self, value: int, *, at_least: str = "", at_most: str = "") -> int:
        """Return the value, or the nearest that these settings of the target allow, as far as they are known."""
        with suppress(Unsupported):
            value = max(value, self.setting(at_least))
        with suppress(Unsupported):
            value = min(value, self.setting(at_most))
        return value

    def reported(self, name: str) -> str | None:
        """Return a setting as the broker reports it (DescribeConfigs); None if it does not say."""
        node, address = next((node, each) for node, each in self.target.addresses.items() if self.is_up(node))
        return described_settings(node, address, self.access).get(name)

    def stop(self, node: int) -> None:
        self.log.add_fault("stop", node)
        self._stopped_nodes.add(node)
        self.target.stop_node(node)

    def kill(self, node: int) -> None:
        self.log.add_fault("kill", node)
        self._stopped_nodes.add(node)
        self.target.kill_node(node)
        self._paused_nodes.discard(node)

    def start(self, node: int) -> None:
        """Start the node and wait until all brokers that are up list it in Metadata."""
        self.target.start_node(node)
        self.eventually(f"broker {node} in the Metadata of every broker", lambda: self._is_back(node), START_S)
        self._stopped_nodes.discard(node)

    def _is_back(self, node: int) -> bool:
        addresses = [address for other, address in self.target.addresses.items() if other == node or self.is_up(other)]
        with suppress(TargetFailure):
            return all(node in brokers_of(address, self.access) for address in addresses)
        return False

    def pause(self, node: int) -> None:
        self.log.add_fault("pause", node)
        self._paused_nodes.add(node)
        self.target.pause_node(node)

    def resume(self, node: int) -> None:
        self.target.resume_node(node)
        self._paused_nodes.discard(node)

    # -- faults of links, disks and clocks -----------------------------------------------------------

    def _faults(self, capability: str) -> FaultTarget:
        self.need(capability)
        return cast("FaultTarget", self.target)

    def cut_links(self, node: int, *others: int) -> None:
        """Cut the links between a broker and these ones, by default all others."""
        faults, self._links_are_faulty = self._faults(LINKS), True
        self.log.add_fault("cut", node)
        faults.cut_links(node, others or [each for each in self.target.addresses if each != node])

    def slow_links(self, node: int, *others: int, delay_ms: int) -> None:
        faults, self._links_are_faulty = self._faults(LINKS), True
        faults.slow_links(node, others, delay_ms)

    def restore_links(self) -> None:
        self._faults(LINKS).restore_links()

    def kill_losing_tail(self, node: int) -> None:
        faults = self._faults(LOST_TAILS)
        self.log.add_fault(LOST_TAIL, node)
        self._stopped_nodes.add(node)
        faults.kill_losing_tail(node)

    def move_clocks(self, seconds: int) -> None:
        """Move the wall clocks of all brokers; that of the case, and all timers, stay as they are."""
        self._faults(CLOCKS).move_clocks(seconds)

    def is_up(self, node: int) -> bool:
        return node not in self._stopped_nodes and node not in self._paused_nodes

    # -- topics --------------------------------------------------------------------------------------

    def name(self, what: str = "t") -> str:
        return f"{self.prefix}-{what}{next(self._counter)}"

    def topic_name(self) -> str:
        """Return a name for a topic that the case creates itself; `close` deletes the topic."""
        name = self.name()
        self._topics.append(name)
        return name

    def create_topic(
        self, *, partitions: int = 1, replicas: int | None = None, configs: dict[str, str] | None = None,
        assignment: Sequence[int] | None = None, name: str | None = None,
    ) -> Topic:  # fmt: skip
        """Create a topic, wait for its leaders and return its last partition; Metadata creates it without CreateTopics.

        The last one: a broker that confuses the partitions of a topic mostly treats them all like the first.
        """
        named, name = name, name or self.name()
        if 19 in self.advertised:
            wanted = self._usual_configs() | (configs or {})
            request = _create_request(name, partitions, self._replicas(replicas), wanted, assignment)
            created = self._create(request, is_new=named is None)
            if configs and created.error_code == ErrorCode.INVALID_CONFIG:
                raise Unsupported(f"the target rejects a topic with {configs}")
            expect("error code of CreateTopics", 0, created.error_code)
        elif configs or assignment:
            raise Unsupported("the topic needs settings, and CreateTopics is not advertised")
        else:
            requested, partitions = (MetadataRequestTopic(name=name),), 1
            self.connect().call(MetadataRequest(topics=requested, allow_auto_topic_creation=True))
        self._topics.append(name)
        return self.served_topic(name, partitions - 1)

    def served_topic(self, name: str, partition: int = 0) -> Topic:
        """Wait until all brokers know a topic that was created, and its leaders serve it; return the partition."""
        topic = self.topic(name, partition=partition)
        self.eventually(f"{name} in the Metadata of every broker", lambda: self._is_served(topic))
        return topic

    def _create(self, request: CreateTopicsRequest, *, is_new: bool) -> Any:
        """Create a topic, again while a restarted broker has not registered, or the last topic of that name goes."""
        passing = {ErrorCode.INVALID_REPLICATION_FACTOR, *([] if is_new else [ErrorCode.TOPIC_ALREADY_EXISTS])}
        deadline = self.clock.monotonic() + self.wait_limit.cap_polling(CREATED_S)
        while True:
            created = only(self.call_controller(request).topics)
            is_final = created.error_code not in passing or len(self.target.addresses) == 1
            if is_final or self.clock.monotonic() > deadline:
                return created
            self.clock.sleep(POLL_S)

    def _usual_configs(self) -> dict[str, str]:
        """Return what a topic needs to be as cases expect it where the broker has another default."""
        reported = {config: (self.reported(setting), usual) for setting, config, usual in USUAL}
        return {config: usual for config, (value, usual) in reported.items() if value not in (None, usual)}

    def _is_served(self, topic: Topic) -> bool:
        """Metadata may name a leader before that broker leads, and brokers learn of a new topic one after another."""
        found = self.describe(topic.name)
        parts = {part.partition_index: part.leader_id for part in found.partitions} if found else {}
        if not all(self._leads(leader, topic, parts) for leader in {topic.leader_id, *parts.values()}):
            return False
        return all(self._knows(address, topic) for node, address in self.target.addresses.items() if self.is_up(node))

    def _leads(self, node: int, topic: Topic, leaders: Mapping[int, int]) -> bool:
        """Whether the broker serves all partitions of the topic that it leads by these leaders by partition."""
        address = self.target.addresses.get(node)
        if address is None:
            return False
        with self.connect(address) as broker:
            errors = [
                broker.list_offset(replace(topic, partition=index), LATEST).error_code
                for index, leader in leaders.items()
                if leader == node
            ]
        return not LEADER_NOT_READY.intersection(errors)

    def _knows(self, address: str, topic: Topic) -> bool:
        with self.connect(address) as broker:
            found = only(broker.metadata(topic.name).topics)
        return not found.error_code and all(part.leader_id >= 0 for part in found.partitions)

    def delete_topics(self, *names: str) -> None:
        """Delete topics; raises Unsupported if DeleteTopics is not advertised."""
        lowest, newest = self.advertised.get(20, (0, -1))
        if newest < lowest:
            raise Unsupported("DeleteTopics is not advertised")
        by_state = tuple(DeleteTopicState(name=name) for name in names)
        request = {"topics": by_state} if newest >= TOPICS_BY_STATE else {"topic_names": names}
        self.call_controller(DeleteTopicsRequest(timeout_ms=DELETION_TIMEOUT_MS, **request))

    def call_controller(self, request: object) -> Any:
        """Send a request to the controller, again while the controller is changing, and return the reply."""

        with self.connect() as broker:
            broker.version_of(type(request))

        def send_to_controller() -> Any:
            with self.connect() as broker:
                controller = broker.call(MetadataRequest(topics=()), 1).controller_id
            if controller not in self.target.addresses or not self.is_up(controller):
                return None
            with self.connect(self.target.addresses[controller]) as broker:
                reply = broker.call(request)
            results = getattr(reply, "topics", ()) or getattr(reply, "responses", ())
            return None if any(result.error_code == ErrorCode.NOT_CONTROLLER for result in results) else reply

        return self.eventually("a reply of the controller", send_to_controller)

    def _replicas(self, request: int | None) -> int:
        return request or min(3, len(self.target.addresses))

    def topic(
        self, name: str, *, partition: int = 0, excluded_leader: int | None = None, timeout_s: float = 15.0
    ) -> Topic:
        """Wait until the partition has a leader other than `excluded_leader`, and return its id, address and epoch."""

        def poll() -> Topic | None:
            found = self.describe(name)
            if found is None or found.error_code or not found.partitions:
                return None
            part = next((part for part in found.partitions if part.partition_index == partition), None)
            if part is None or part.error_code or part.leader_id in (-1, excluded_leader):
                return None
            address = self.target.addresses[part.leader_id]
            return Topic(name, address, part.leader_id, part.leader_epoch, partition)

        return self.eventually(f"a leader of {name}", poll, timeout_s)

    def describe(self, name: str) -> MetadataResponseTopic | None:
        """Return the topic from the Metadata of a broker that is up; None if that broker does not answer."""
        with suppress(NoReply), self.connect() as broker:
            topic: MetadataResponseTopic = only(broker.metadata(name).topics)
            return topic
        return None

    def isr_of(self, topic: Topic) -> tuple[int, ...]:
        found = self.describe(topic.name)
        return (
            next((p.isr_nodes for p in found.partitions if p.partition_index == topic.partition), ()) if found else ()
        )

    def leader(self, topic: Topic) -> Broker:
        return self.connect(topic.leader)

    # -- groups --------------------------------------------------------------------------------------

    def group(self) -> str:
        name = self.name("g")
        self._groups.append(name)
        return name

    def forget_group(self, name: str) -> None:
        """Leave out a group that the case has not used from the deletion at its end."""
        self._groups.remove(name)

    def coordinator(self, group: str) -> Broker:
        """Wait for the group's coordinator and return a connection to it."""

        def poll() -> str | None:
            with self.connect() as broker:
                found = find_coordinator(broker, group)
            address = f"{found.host}:{found.port}"
            is_known = found.error_code not in COORDINATOR_UNAVAILABLE and address not in down
            return address if is_known and self._coordinates(address, group) else None

        # A broker may name one that has just been stopped, as long as it has not heard of that.
        down = {each for node, each in self.target.addresses.items() if not self.is_up(node)}

        return self.connect(self.eventually(f"a coordinator of {group}", poll, 15.0))

    def _coordinates(self, address: str, group: str) -> bool:
        """A new coordinator answers with an error while it loads the groups."""
        if DESCRIBE_GROUPS not in self.advertised:
            return True
        with self.connect(address) as broker:
            found = only(broker.call(DescribeGroupsRequest(groups=(group,))).groups)
        return found.error_code not in COORDINATOR_UNAVAILABLE

    # -- time, polling and clean-up ------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the wall clock of the target's machine, for timestamps of records."""
        return now_ms(self.clock)

    def eventually(self, what: str, poll: Callable[[], T | None], timeout_s: float = 10.0) -> T:
        """Call `poll` until it returns neither None nor False; raises TargetFailure after `timeout_s`."""
        deadline = self.clock.monotonic() + self.wait_limit.cap_polling(timeout_s)
        while True:
            found = poll()
            if found is not None and found is not False:
                return found
            if self.clock.monotonic() > deadline:
                raise TargetFailure("polling", expected=f"{what} within {timeout_s:g} s", actual="none")
            self.clock.sleep(POLL_S)

    def close(self) -> None:
        if self._links_are_faulty:
            self.restore_links()
        for node in list(self._paused_nodes):
            self.resume(node)
        for node in list(self._stopped_nodes):
            self.start(node)
        if not self.keep:
            with suppress(TargetFailure, Unsupported):
                self._clean_up()
        for broker in self._connections:
            broker.close()

    def _clean_up(self) -> None:
        """Delete groups and topics; errors are ignored, because deletion has cases of its own."""
        for group in self._groups:
            if 42 in self.advertised:
                self.coordinator(group).call(DeleteGroupsRequest(groups_names=(group,)))
        if self._topics and 20 in self.advertised:
            self.delete_topics(*self._topics)


def find_coordinator(broker: Broker, group: str, version: int | None = None) -> Any:
    """Return the reply, or from version 4 on its only coordinator; the relevant fields have the same names."""
    chosen = broker.version_of(FindCoordinatorRequest) if version is None else version
    if chosen >= BATCHED_COORDINATORS:
        return only(broker.call(FindCoordinatorRequest(coordinator_keys=(group,)), chosen).coordinators)
    return broker.call(FindCoordinatorRequest(key=group), chosen)


def _create_request(
    name: str, partitions: int, replicas: int, configs: dict[str, str], assignment: Sequence[int] | None
) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replicas,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(assignment or ()))
            for index in range(partitions if assignment else 0)
        ),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    return CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
