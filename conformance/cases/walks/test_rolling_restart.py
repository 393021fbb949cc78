"""A rolling restart: what brokers store and describe is the same after each of them has restarted."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from highwater.conformance.cases.support.admin import controller, describe_configs
from highwater.conformance.cases.support.committed_offsets import commit, committed_part, committed_topics
from highwater.conformance.cases.support.log_walks.reads import READ_COMMITTED, READ_UNCOMMITTED
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.cases.support.offsets import delete_records, epoch_end
from highwater.conformance.cases.support.producers import IdempotentProducer
from highwater.conformance.cases.support.replicas import controller_last
from highwater.conformance.cases.support.transactions import (
    ABORT,
    COMMIT,
    Transactional,
    committed_values,
    describe_transaction,
    eventually_stable,
    read_all,
)
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import EARLIEST, LATEST, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.conformance.models.comparison import shortened
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterEntityData,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    OpData,
)
from highwater.reference.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.transactions import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    TopicRequest,
)

BACK_S: Final = 60.0
LONG_MS: Final = 600_000
MAX_TIMESTAMP: Final = -3
PARTITIONS: Final = 2
CHANGING: Final = frozenset({"throttle_time_ms", "leader_id", "leader_epoch", "current_leader_epoch"})
"""Fields that a restart may change."""
UNORDERED: Final = frozenset({"isr_nodes"})
SETTINGS: Final = {"retention.ms": "123456789", "max.message.bytes": "234567", "min.insync.replicas": "2"}
ANOTHER: Final = count()
"""Makes a planted defect change what a broker describes with each request."""
Leaves = Mapping[str, object]
"""The path of each value of a reply, and the value."""


def leaves(value: Any, path: str = "") -> dict[str, object]:
    """Return each value of a reply by its path; elements with names or numbers of their own are in order of these."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in CHANGING}
        parts |= {name: sorted(parts[name]) for name in UNORDERED & parts.keys()}
    elif isinstance(value, Mapping):
        parts = dict(value)
    elif isinstance(value, tuple | list):
        ordered = sorted(value, key=repr) if value and is_dataclass(value[0]) else value
        parts = {str(number): each for number, each in enumerate(ordered)}
    else:
        return {path: value}
    found: dict[str, object] = {f"{path} length": len(parts)} if isinstance(value, tuple | list | Mapping) else {}
    for name, each in parts.items():
        found |= leaves(each, f"{path}.{name}" if path else str(name))
    return found


class KeptState:
    """Topics, producers, transactions, groups and quotas, and what the brokers describe of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        first = cluster.create_topic(partitions=PARTITIONS, replicas=3, configs=SETTINGS)
        second = cluster.create_topic(partitions=PARTITIONS, replicas=3, configs={"cleanup.policy": "compact,delete"})
        self.topics = [first, second]
        self.producer = IdempotentProducer.create(cluster, first)
        self.next_sequence, self.last_offset = 5, 0
        for sequence, records in ((0, 2), (2, 3)):
            self.last_offset = self.producer.send_accepted(sequence, records)
        expect("error code and low watermark", (0, 1), delete_records(cluster.leader(first), first, 1))
        self.group, self.other_group = cluster.group(), cluster.group()
        self.member = self._write_groups()
        self.ended, self.open = (Transactional.initialize(cluster, timeout_ms=LONG_MS) for _ in range(2))
        self._write_transactions()
        self._write_settings()

    def _write_groups(self) -> Member:
        """Commit offsets of two groups, one of which has a static member."""
        member = GroupDriver(self.cluster, self.group)
        joined = member.stable_member(session_timeout_ms=member.session_ms(LONG_MS))
        expect("error code of the sync", 0, joined.sync({joined.member_id: b"assigned"}).error_code)
        named = {"generation": joined.generation, "member_id": joined.member_id}
        for offset, topic in enumerate(self.topics, 2):
            with self.cluster.coordinator(self.other_group) as broker:
                expect("error code of the commit", 0, commit(broker, self.other_group, topic, offset, metadata="none"))
            found = commit(joined.broker, self.group, topic, offset, metadata=f"at {offset}", epoch=0, **named)  # type: ignore[arg-type]
            expect("error code of the commit of a member", 0, found)
        return joined

    def _write_transactions(self) -> None:
        """Commit one transaction, abort the next, and leave one of another producer open."""
        second = self.topics[1]
        for sequence, outcome in enumerate((COMMIT, ABORT)):
            self.ended.begin(second)
            self.ended.write(second, sequence, b"%d" % sequence)
            self.ended.end(commit=outcome)
            eventually_stable(self.cluster, self.cluster.leader(second), second, 2 * sequence + 2)
            self.cluster.eventually("the transaction to be complete", self._is_complete)
        self.open.begin(*self.topics)
        self.open.write(second, 0, b"open")
        expect("error code of AddOffsetsToTxn", 0, self.open.add_offsets(self.other_group))
        expect("error code of TxnOffsetCommit", 0, self.open.commit_offset(self.other_group, second, 42))

    def _is_complete(self) -> bool:
        return str(describe_transaction(self.ended).transaction_state).startswith("Complete")

    def _write_settings(self) -> None:
        """Set a quota, if the target has them."""
        self.name = self.cluster.name("user")
        entity = (AlterEntityData(entity_type="user", entity_name=self.name),)
        rate = OpData(key="producer_byte_rate", value=1234567.0)
        quota = AlterClientQuotasRequestEntryData(entity=entity, ops=(rate,))
        with controller(self.cluster) as broker, suppress(Unsupported):
            broker.call(AlterClientQuotasRequest(entries=(quota,)))
            for address in self.cluster.target.addresses.values():
                self.cluster.eventually("the quota at every broker", partial(self._has_quota, address))

    # -- what is described ---------------------------------------------------------------------------

    def views(self) -> dict[str, Callable[[], Any]]:
        """Return by name what reads a part of the state from the brokers that have it."""
        found: dict[str, Callable[[], Any]] = {
            "quotas": self._quotas,
            "transactions": lambda: {each.id: _transaction(each) for each in (self.ended, self.open)},
        }  # fmt: skip
        for node in self.cluster.target.addresses:
            found[f"topics at broker {node}"] = partial(self._topics, node)
        for topic in self.topics:
            found[f"settings of {topic.name}"] = partial(self._settings, topic)
            found[f"log of {topic.name}"] = partial(self._log, topic)
        for group in (self.group, self.other_group):
            found[f"group {group}"] = partial(self._group, group)
        return found

    def _topics(self, node: int) -> Any:
        with self.cluster.connect(self.cluster.target.addresses[node]) as broker:
            return broker.metadata(*(topic.name for topic in self.topics)).topics

    def _settings(self, topic: Topic) -> Any:
        with self.cluster.connect() as broker:
            result = describe_configs(broker, topic.name, include_synonyms=True)
        return {setting.name: setting for setting in result.configs}

    def _log(self, topic: Topic) -> dict[str, Any]:
        """Return what the leader has of a partition; a new one may know less of it for a moment."""
        again = self._present(topic)
        with self.cluster.leader(again) as leader:
            found: dict[str, Any] = {
                f"records at isolation {level}": [part.records for part in read_all(leader, again, level)]
                for level in (READ_UNCOMMITTED, READ_COMMITTED)
            }
            for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP):
                found[f"offset of {timestamp}"] = leader.list_offset(again, timestamp).offset
            found["end of epoch 0"] = epoch_end(leader, again, 0).end_offset
            requested = TopicRequest(name=topic.name, partition_indexes=(topic.partition,))
            found |= _supported("producers", lambda: leader.call(DescribeProducersRequest(topics=(requested,))).topics)
        return found

    def _group(self, group: str) -> dict[str, Any]:
        with self.cluster.coordinator(group) as broker:
            listed = broker.call(ListGroupsRequest()).groups
            return {
                "described": broker.call(DescribeGroupsRequest(groups=(group,))).groups,
                "listed": tuple(each for each in listed if each.group_id == group),
                "offsets": {
                    topic.name: [(part.committed_offset, part.committed_leader_epoch, part.metadata)
                                 for part in only(committed_topics(broker, group, topic)).partitions]
                    for topic in self.topics
                },
            }  # fmt: skip

    def _has_quota(self, address: str) -> bool:
        return bool(self._quotas(address))

    def _quotas(self, address: str | None = None) -> Any:
        component = ComponentData(entity_type="user", match_type=0, match=self.name)
        with self.cluster.connect(address) as broker:
            return broker.call(DescribeClientQuotasRequest(components=(component,))).entries

    def _present(self, topic: Topic) -> Topic:
        """Return the partition with its present leader."""
        return self.cluster.topic(topic.name, partition=topic.partition, timeout_s=BACK_S)

    # -- afterwards ----------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Let each producer and member do what it would have done next."""
        first, second = map(self._present, self.topics)
        producer = IdempotentProducer(self.cluster.leader(first), first, self.producer.producer_id, self.producer.epoch)
        expect("offset of the repeated batch", self.last_offset, producer.send_accepted(2, 3))
        expect("offset of the next batch", self.last_offset + 3, producer.send_accepted(self.next_sequence))
        self.member.broker = self.cluster.coordinator(self.group)
        expect("error code of a heartbeat", 0, self.member.heartbeat_error())
        producer_again = self.open.reconnect()
        producer_again.write(second, 1, b"still open")
        producer_again.end(commit=COMMIT)
        leader = self.cluster.leader(second)
        eventually_stable(self.cluster, leader, second, 7, BACK_S)
        expect("values", [b"0", b"open", b"still open"], committed_values(leader, second))
        with self.cluster.coordinator(self.other_group) as broker:

            def offset() -> int:
                return int(committed_part(broker, self.other_group, second).committed_offset)

            self.cluster.eventually("the offset of the transaction", lambda: offset() == 42, BACK_S)


def _transaction(producer: Transactional) -> Any:
    again = producer.reconnect()
    listed = again.coordinator.call(ListTransactionsRequest()).transaction_states
    return {"described": describe_transaction(again),
            "listed": tuple(each for each in listed if each.transactional_id == producer.id)}  # fmt: skip


def _supported(name: str, read: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {name: read()}
    except Unsupported:
        return {}


def read(views: Mapping[str, Callable[[], Any]]) -> dict[str, dict[str, object]]:
    """Return the values of each view that the target supports."""
    return {name: leaves(found) for name, view in views.items() for found in _supported(name, view).values()}


def expect_same(cluster: Cluster, before: Mapping[str, Leaves], state: KeptState, when: str) -> None:
    """Wait until each view is as before; raises TargetFailure for the first value that differs."""
    for name, view in state.views().items():
        if name not in before:
            continue
        last: dict[str, object] = {}

        def is_same(name: str = name, view: Callable[[], Any] = view, last: dict[str, object] = last) -> bool:
            found = leaves(view())
            last.clear()
            last.update(found)
            return found == before[name]

        try:
            cluster.eventually(f"{name} as before", is_same, BACK_S)
        except TargetFailure:
            for path in sorted(before[name].keys() | last.keys()):
                was, present = (shortened(found.get(path, "nothing")) for found in (before[name], last))
                expect(f"{when}, {name}: {path}", was, present)
            raise


def in_sync(cluster: Cluster) -> bool:
    """Return whether every partition, of internal topics too, has its leader and all its replicas in sync."""
    with cluster.connect() as broker:
        reply = broker.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    parts = [part for topic in reply.topics for part in topic.partitions]
    return all(part.leader_id >= 0 and len(part.isr_nodes) == len(part.replica_nodes) for part in parts)


@clause("CTL-15")
@pytest.mark.cluster_fault
@pytest.mark.slow
@defect(
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", increment),
    Reply(DescribeConfigsRequest, "results.configs.value", lambda value: f"{value}{next(ANOTHER)}"),
)
def test_a_rolling_restart_changes_nothing(cluster: Cluster) -> None:
    """Each broker is stopped as an operator stops it; one that is killed may forget a log start for a moment."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    state = KeptState(cluster)
    before = read(state.views())
    for node in controller_last(cluster):
        cluster.stop(node)
        cluster.start(node)
        cluster.eventually("all replicas in sync", lambda: in_sync(cluster), BACK_S)
        expect_same(cluster, before, state, f"after the restart of broker {node}")
    state.go_on()
