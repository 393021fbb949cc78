"""The target as a case sees it: connections to the right broker, topics and groups of its own, and their removal."""

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from highwater.conformance.broker import LATEST, Advertised, Broker, Topic, expect, only
from highwater.conformance.connection import Patience, access_of
from highwater.conformance.exchange import ExchangeLog
from highwater.conformance.failures import NoReply, TargetFailure, Unsupported
from highwater.conformance.targets.base import Target
from highwater.conformance.targets.discovery import brokers_of
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
INVALID_CONFIG: Final = 40
NOT_CONTROLLER: Final = 41
DELETION_MS: Final = 3_000
"""Sooner than we give up: a deletion that waits for a broker is answered in time."""
NOT_YET_LEADER: Final = (3, 6)
NOT_COORDINATING: Final = (14, 15, 16)
DESCRIBE_GROUPS: Final = 15
BATCHED_COORDINATORS: Final = 4
TOPICS_BY_STATE: Final = 6


class Cluster:
    """One for each case. `close` removes what the case made, unless it is to be kept."""

    def __init__(
        self, target: Target, advertised: Advertised, *, timeout_s: float = 5.0, keep: bool = False,
        patience: Patience | None = None,
    ) -> None:  # fmt: skip
        self.target, self.advertised, self.timeout_s, self.keep = target, advertised, timeout_s, keep
        self.patience = patience or Patience()
        self.log = ExchangeLog()
        self._prefix = f"hw-{uuid.uuid4().hex[:10]}"
        self._counter = itertools.count(1)
        self._open: list[Broker] = []
        self._topics: list[str] = []
        self._groups: list[str] = []
        self._down: set[int] = set()
        self._paused: set[int] = set()

    # -- brokers -------------------------------------------------------------------------------------

    def connect(self, address: str | None = None, timeout_s: float | None = None) -> Broker:
        """A new connection, closed at the end of the case; by default to the first broker that is up."""
        broker = Broker(
            address or self.any_address(), self.advertised, timeout_s=timeout_s or self.timeout_s, log=self.log,
            patience=self.patience, access=access_of(self.target.command_config),
        )  # fmt: skip
        self._open.append(broker)
        return broker

    def any_address(self) -> str:
        return next(address for node, address in self.target.addresses.items() if self.is_up(node))

    def need_brokers(self, count: int) -> None:
        if len(self.target.addresses) < count:
            raise Unsupported(f"needs {count} brokers, the target has {len(self.target.addresses)}")

    def need(self, capability: str) -> None:
        if capability not in self.target.capabilities:
            raise Unsupported(f"the target offers no {capability}")

    def setting(self, name: str) -> int:
        if name not in self.target.settings:
            raise Unsupported(f"the target's {name} is unknown")
        return self.target.settings[name]

    def stop(self, node: int) -> None:
        self._down.add(node)
        self.target.stop_node(node)

    def kill(self, node: int) -> None:
        self._down.add(node)
        self.target.kill_node(node)

    def start(self, node: int) -> None:
        """Back, and known to the others again."""
        self.target.start_node(node)
        self.eventually(f"broker {node} to be known to all", lambda: self._is_back(node), 20.0)
        self._down.discard(node)

    def _is_back(self, node: int) -> bool:
        access = access_of(self.target.command_config)
        asked = [address for each, address in self.target.addresses.items() if each == node or self.is_up(each)]
        with suppress(TargetFailure):
            return all(node in brokers_of(address, access) for address in asked)
        return False

    def pause(self, node: int) -> None:
        self._paused.add(node)
        self.target.pause_node(node)

    def resume(self, node: int) -> None:
        self.target.resume_node(node)
        self._paused.discard(node)

    def is_up(self, node: int) -> bool:
        return node not in self._down and node not in self._paused

    # -- topics --------------------------------------------------------------------------------------

    def name(self, what: str = "t") -> str:
        return f"{self._prefix}-{what}{next(self._counter)}"

    def topic_name(self) -> str:
        """Of a topic that the case makes by itself, and that goes with the others."""
        name = self.name()
        self._topics.append(name)
        return name

    def create_topic(
        self, *, partitions: int = 1, replicas: int | None = None, configs: dict[str, str] | None = None,
        assignment: Sequence[int] | None = None, name: str | None = None,
    ) -> Topic:  # fmt: skip
        """A new topic with its leader in place; a target without CreateTopics makes it on demand."""
        name = name or self.name()
        if 19 in self.advertised:
            request = _create_request(name, partitions, self._replicas(replicas), configs or {}, assignment)
            created = only(self.ask_controller(request).topics)
            if configs and created.error_code == INVALID_CONFIG:
                raise Unsupported(f"the target refuses a topic with {configs}")
            expect("error code of CreateTopics", 0, created.error_code)
        elif configs or assignment:
            raise Unsupported("CreateTopics is not advertised, and the topic needs settings")
        else:
            asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True)
            self.connect().call(asked)
        self._topics.append(name)
        topic = self.topic(name)
        self.eventually(f"{name} to be known to all", lambda: self._is_served(topic))
        return topic

    def _is_served(self, topic: Topic) -> bool:
        """Metadata may name a leader a moment before that one knows, and brokers hear of a topic one by one."""
        with self.leader(topic) as leader:
            if leader.list_offset(topic, LATEST).error_code in NOT_YET_LEADER:
                return False
        return all(self._knows(address, topic) for node, address in self.target.addresses.items() if self.is_up(node))

    def _knows(self, address: str, topic: Topic) -> bool:
        with self.connect(address) as broker:
            found = only(broker.metadata(topic.name).topics)
        return not found.error_code and all(part.leader_id >= 0 for part in found.partitions)

    def delete_topics(self, *names: str) -> None:
        """`Unsupported` where topics cannot be deleted."""
        lowest, newest = self.advertised.get(20, (0, -1))
        if newest < lowest:
            raise Unsupported("DeleteTopics is not advertised")
        by_state = tuple(DeleteTopicState(name=name) for name in names)
        asked = {"topics": by_state} if newest >= TOPICS_BY_STATE else {"topic_names": names}
        self.ask_controller(DeleteTopicsRequest(timeout_ms=DELETION_MS, **asked))

    def ask_controller(self, request: object) -> Any:
        """CreateTopics and DeleteTopics go to the controller, which may just be changing."""

        with self.connect() as broker:
            broker.version_of(type(request))

        def ask() -> Any:
            with self.connect() as broker:
                controller = broker.call(MetadataRequest(topics=()), 1).controller_id
            if controller not in self.target.addresses or not self.is_up(controller):
                return None
            with self.connect(self.target.addresses[controller]) as broker:
                reply = broker.call(request)
            results = getattr(reply, "topics", ()) or getattr(reply, "responses", ())
            return None if any(each.error_code == NOT_CONTROLLER for each in results) else reply

        return self.eventually("an answer of the controller", ask)

    def _replicas(self, asked: int | None) -> int:
        return asked or min(3, len(self.target.addresses))

    def topic(self, name: str, *, than_leader: int | None = None, timeout_s: float = 15.0) -> Topic:
        """Wait for a leader (another one than `than_leader`) and say who and where it is."""

        def look() -> Topic | None:
            found = self.describe(name)
            if found is None or found.error_code or not found.partitions:
                return None
            part = next(each for each in found.partitions if each.partition_index == 0)
            if part.error_code or part.leader_id in (-1, than_leader):
                return None
            address = self.target.addresses[part.leader_id]
            return Topic(name, address, part.leader_id, part.leader_epoch)

        return self.eventually(f"a leader of {name}", look, timeout_s)

    def describe(self, name: str) -> MetadataResponseTopic | None:
        """The topic as a broker that is up tells it; None when that broker does not answer."""
        with suppress(NoReply), self.connect() as broker:
            topic: MetadataResponseTopic = only(broker.metadata(name).topics)
            return topic
        return None

    def isr_of(self, topic: Topic) -> tuple[int, ...]:
        found = self.describe(topic.name)
        return next((p.isr_nodes for p in found.partitions if p.partition_index == 0), ()) if found else ()

    def leader(self, topic: Topic) -> Broker:
        return self.connect(topic.leader)

    # -- groups --------------------------------------------------------------------------------------

    def group(self) -> str:
        name = self.name("g")
        self._groups.append(name)
        return name

    def coordinator(self, group: str) -> Broker:
        """A connection to the group's coordinator, once there is one."""

        def look() -> str | None:
            with self.connect() as broker:
                found = find_coordinator(broker, group)
            address = f"{found.host}:{found.port}"
            return address if found.error_code not in NOT_COORDINATING and self._coordinates(address, group) else None

        return self.connect(self.eventually(f"a coordinator of {group}", look, 15.0))

    def _coordinates(self, address: str, group: str) -> bool:
        """It may still be loading what it is to coordinate."""
        if DESCRIBE_GROUPS not in self.advertised:
            return True
        with self.connect(address) as broker:
            found = only(broker.call(DescribeGroupsRequest(groups=(group,))).groups)
        return found.error_code not in NOT_COORDINATING

    # -- waiting and the end -------------------------------------------------------------------------

    def eventually(self, what: str, look: Callable[[], T | None], timeout_s: float = 10.0) -> T:
        """Ask until the answer is neither None nor False."""
        deadline = time.monotonic() + self.patience.of_polling(timeout_s)
        while True:
            found = look()
            if found is not None and found is not False:
                return found
            if time.monotonic() > deadline:
                raise TargetFailure("the wait", expected=f"{what} within {timeout_s:g} s", actual="none")
            time.sleep(POLL_S)

    def close(self) -> None:
        for node in list(self._paused):
            self.resume(node)
        for node in list(self._down):
            self.start(node)
        if not self.keep:
            with suppress(TargetFailure, Unsupported):
                self._clean_up()
        for broker in self._open:
            broker.close()

    def _clean_up(self) -> None:
        """Removal is a courtesy: it is judged by cases of its own, not here."""
        for group in self._groups:
            if 42 in self.advertised:
                self.coordinator(group).call(DeleteGroupsRequest(groups_names=(group,)))
        if self._topics and 20 in self.advertised:
            self.delete_topics(*self._topics)


def find_coordinator(broker: Broker, group: str, version: int | None = None) -> Any:
    """The reply, or its one coordinator: both have `error_code`, `node_id`, `host` and `port`."""
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
        assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=tuple(assignment)),)
        if assignment
        else (),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    return CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
