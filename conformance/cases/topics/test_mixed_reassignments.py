"""Reassignments and elections of many partitions in one request, valid and invalid ones, compared with a model."""

import random
from typing import Any, Final

from highwater.conformance.cases.support.admin import TIMEOUT_MS, controller
from highwater.conformance.cases.support.reassignments import PREFERRED, UNCLEAN, WAIT_S, ongoing_reassignments
from highwater.conformance.cases.support.replicas import FAILOVER_S, log_of, produce_acknowledged
from highwater.conformance.cases.topics.test_replicas import MISSING, UNKNOWN_BROKER, log_sizes
from highwater.conformance.clause import clause
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
)

Key = tuple[str, int]
"""Topic and partition."""
Replicas = tuple[int, ...]
SEED: Final = 455
PARTITIONS: Final = 4
ROUNDS: Final = 4
ELECTIONS_OF_KINDS: Final = 1
"""First version of ElectLeaders with a kind of election."""


class ReplicaWalk:
    """Two topics whose replicas and leaders are known; each partition has one record."""

    def __init__(self, cluster: Cluster) -> None:
        cluster.need_brokers(3)
        self.cluster, self.random = cluster, random.Random(SEED)
        self.nodes = sorted(cluster.target.addresses)[:3]
        topics = [cluster.create_topic(partitions=PARTITIONS, assignment=self.nodes[:2]).name for _ in range(2)]
        self.replicas: dict[Key, Replicas] = {
            (name, number): tuple(self.nodes[:2]) for name in topics for number in range(PARTITIONS)
        }
        self.leaders = dict.fromkeys(self.replicas, self.nodes[0])
        self.unknown = [(topics[0], MISSING), (cluster.name(), 0)]
        for name, number in self.replicas:
            produce_acknowledged(cluster, cluster.topic(name, partition=number), b"%d" % number)

    # -- reassignments -----------------------------------------------------------------------------------

    def _change(self, key: Key) -> tuple[Replicas | None, int]:
        """Return replicas to request, or None to cancel, and the error."""
        valid = tuple(self.random.sample(self.nodes, self.random.randint(1, 3)))
        twice, unknown = (*valid, valid[0]), (valid[0], UNKNOWN_BROKER)
        invalid = int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        return self.random.choice(
            [
                *[(valid, 0)] * 4, (self.replicas[key], 0), (None, int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)),
                (twice, invalid), (unknown, invalid), ((), invalid), ((-1,), invalid),
            ]
        )  # fmt: skip

    def reassign(self) -> None:
        """Request changes of most partitions, existing and unknown ones, and compare the errors and the replicas."""
        keys = self.random.sample(list(self.replicas), PARTITIONS + 2)
        wanted = {key: self._change(key) for key in keys}
        for key in self.unknown:
            wanted[key] = ((self.nodes[0],), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        topics = [
            [name, [[number, wanted[topic, number][0]] for topic, number in wanted if topic == name]]
            for name in dict.fromkeys(name for name, _ in wanted)
        ]
        with controller(self.cluster) as broker:
            request = message(AlterPartitionReassignmentsRequest, topics=topics, timeout_ms=TIMEOUT_MS)
            reply = broker.call(request, None, WAIT_S)
        expect("error code of AlterPartitionReassignments", 0, reply.error_code)
        found = {
            (topic.name, part.partition_index): part.error_code
            for topic in reply.responses
            for part in topic.partitions
        }
        _compare(
            "error codes of AlterPartitionReassignments", {key: error for key, (_, error) in wanted.items()}, found
        )
        for key, (replicas, error) in wanted.items():
            if not error and replicas is not None:
                self.replicas[key] = replicas
        self.check()

    def check(self) -> None:
        """Wait until all brokers have exactly these replicas, and read the record of each partition at its leader."""
        self.cluster.eventually(f"replicas {self.replicas}, all in sync", self._is_placed, FAILOVER_S)
        self.cluster.eventually(f"logs of {self.replicas}", self._are_stored, FAILOVER_S)
        names = list(dict.fromkeys(name for name, _ in self.replicas))
        self.cluster.eventually(
            "no reassignment that goes on", lambda: not ongoing_reassignments(self.cluster, *names), FAILOVER_S
        )
        for name, number in self.replicas:
            topic = self.cluster.topic(name, partition=number)
            with self.cluster.leader(topic) as leader:
                values = tuple(record.value for record in log_of(leader, topic))
            expect(f"records of partition {number}", {(b"%d" % number,)}, values)

    def _parts(self) -> dict[Key, Any]:
        names = dict.fromkeys(name for name, _ in self.replicas)
        with self.cluster.connect() as broker:
            found = broker.metadata(*names).topics
        return {(str(topic.name), part.partition_index): part for topic in found for part in topic.partitions}

    def _is_placed(self) -> bool:
        found = self._parts()
        self.leaders = {key: part.leader_id for key, part in found.items()}
        return all(
            part.replica_nodes == self.replicas[key]
            and set(part.isr_nodes) == set(self.replicas[key])
            and part.leader_id in self.replicas[key]
            for key, part in found.items()
        )

    def _are_stored(self) -> bool:
        """Whether each broker has the logs of its replicas and no others."""
        numbers = tuple(range(PARTITIONS))
        topics = [
            DescribableLogDirTopic(topic=name, partitions=numbers) for name in {name for name, _ in self.replicas}
        ]
        for node in self.nodes:
            with self.cluster.connect(self.cluster.target.addresses[node]) as broker:
                if set(log_sizes(broker, *topics)) != {key for key, nodes in self.replicas.items() if node in nodes}:
                    return False
        return True

    # -- elections ---------------------------------------------------------------------------------------

    def elect(self, kind: int) -> None:
        """Elect leaders of most partitions, existing and unknown ones, and compare the errors and the leaders."""
        keys = [*self.random.sample(list(self.replicas), PARTITIONS + 2), *self.unknown]
        requested = [
            [name, tuple(number for topic, number in keys if topic == name)]
            for name in dict.fromkeys(name for name, _ in keys)
        ]
        request = message(ElectLeadersRequest, election_type=kind, topic_partitions=requested, timeout_ms=TIMEOUT_MS)
        with controller(self.cluster) as broker:
            reply = broker.call(request, broker.version_of(ElectLeadersRequest, ELECTIONS_OF_KINDS), WAIT_S)
        expect("error code of ElectLeaders", 0, reply.error_code)
        found = {
            (result.topic, part.partition_id): part.error_code
            for result in reply.replica_election_results
            for part in result.partition_result
        }
        _compare(f"error codes of ElectLeaders {kind}", {key: self._election_error(key, kind) for key in keys}, found)
        for key in keys:
            if key in self.leaders and kind == PREFERRED:
                self.leaders[key] = self.replicas[key][0]
        self.cluster.eventually(f"leaders {self.leaders}", self._are_led)

    def _election_error(self, key: Key, kind: int) -> int:
        """An unclean election is for partitions without a leader."""
        if key not in self.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_needed = kind == PREFERRED and self.leaders[key] != self.replicas[key][0]
        return 0 if is_needed else ErrorCode.ELECTION_NOT_NEEDED

    def _are_led(self) -> bool:
        return {key: part.leader_id for key, part in self._parts().items()} == self.leaders


def _compare(what: str, expected: dict[Key, int], found: dict[Key, int]) -> None:
    differing = {key: (expected.get(key), found.get(key)) for key in expected | found}
    expect(f"{what}: expected and actual", {}, {key: both for key, both in differing.items() if both[0] != both[1]})


@clause("ADM-35", "mixed")
@defect(
    Reply(AlterPartitionReassignmentsRequest, "responses.partitions.error_code", 0),
    Request(DescribeLogDirsRequest, "topics.partitions", (0,)),
    Reply(MetadataRequest, "topics.partitions.isr_nodes", ()),
    Reply(ElectLeadersRequest, "replica_election_results.partition_result.error_code", 0),
)
def test_reassignments_and_elections_follow_the_model(cluster: Cluster) -> None:
    walk = ReplicaWalk(cluster)
    for _ in range(ROUNDS):
        walk.reassign()
        walk.elect(UNCLEAN)
        walk.elect(PREFERRED)
    walk.check()
