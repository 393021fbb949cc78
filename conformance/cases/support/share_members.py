"""Members of a share group (KIP-932), which acquire records of one partition and acknowledge them one by one."""

from collections.abc import Iterable
from typing import Any, Final

from highwater.conformance.cases.support.admin import controller
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import IncrementalAlterConfigsRequest
from highwater.reference.wire.messages.share_groups import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

JOIN, LEAVE = 0, -1
OPEN, CLOSE = 0, -1
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_CONFIG: Final = 32
SET: Final = 0
SHORT_WAIT_MS: Final = 300
Acks = Iterable[tuple[int, int, int]]
"""First offset, last offset and type of each acknowledgement."""


class ShareGroup:
    """A new share group; its readers begin at the first record, unless `reset` says otherwise."""

    def __init__(self, cluster: Cluster, topic: Topic, *, reset: str = "earliest", **configs: str) -> None:
        """Raise Unsupported if the target has no share groups or rejects the configuration of the group."""
        self.cluster, self.topic, self.name = cluster, topic, cluster.group()
        cluster.connect().version_of(ShareGroupHeartbeatRequest)
        configure(cluster, self.name, {"share.auto.offset.reset": reset, **configs})
        self._count = 0

    def member(self) -> "ShareMember":
        self._count += 1
        return ShareMember(self, f"{self.name}-member-{self._count}")

    def reader(self) -> "ShareMember":
        """Return a member that has the partition and an open session."""
        member = self.member()
        expect("error code of the join", 0, member.join().error_code)
        self.cluster.eventually("an assignment", member.gets_assigned)
        expect("error code of the first ShareFetch", 0, member.fetch().error_code)
        return member

    def describe(self) -> Any:
        with self.cluster.coordinator(self.name) as broker:
            return only(broker.call(ShareGroupDescribeRequest(group_ids=(self.name,))).groups)


def configure(cluster: Cluster, group: str, configs: dict[str, str]) -> None:
    """Set configurations of a group; raises Unsupported if the target rejects them."""
    changes = [[name.replace("_", "."), SET, value] for name, value in configs.items()]
    resource = [GROUP_CONFIG, group, changes]
    with controller(cluster) as broker:
        error = only(broker.call(message(IncrementalAlterConfigsRequest, resources=[resource])).responses).error_code
    if error in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST):
        raise Unsupported(f"the target rejects a share group with {configs}")
    expect("error code of IncrementalAlterConfigs", 0, error)


class ShareMember:
    """One member; its connections go to the coordinator of the group and to the leader of the partition."""

    def __init__(self, group: ShareGroup, member_id: str) -> None:
        self.group, self.member_id = group, member_id
        self.coordinator = group.cluster.coordinator(group.name)
        self.leader: Broker = group.cluster.leader(group.topic)
        self.topic_id = self.leader.topic_id(group.topic)
        self.epoch, self.session_epoch = JOIN, OPEN
        self.assigned: set[tuple[bytes, int]] = set()
        self.delivered: set[int] = set()  # all offsets that the member has ever acquired

    # -- membership ----------------------------------------------------------------------------------

    def heartbeat(self, **fields: Any) -> Any:
        """Send a heartbeat; a reply without error updates epoch and assignment."""
        named = {"group_id": self.group.name, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        reply = self.coordinator.call(ShareGroupHeartbeatRequest(**named))
        if not reply.error_code:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.assigned = {
                    (each.topic_id, part) for each in reply.assignment.topic_partitions for part in each.partitions
                }
        return reply

    def join(self, **fields: Any) -> Any:
        return self.heartbeat(**{"member_epoch": JOIN, "subscribed_topic_names": (self.group.topic.name,), **fields})

    def gets_assigned(self) -> bool:
        """Return whether the member has the partition, after another heartbeat if it does not."""
        wanted = (self.topic_id, self.group.topic.partition)
        return wanted in self.assigned or (self.heartbeat() is not None and wanted in self.assigned)

    # -- records -------------------------------------------------------------------------------------

    def fetch_reply(self, acks: Acks = (), *, version: int | None = None, **fields: Any) -> Any:
        """Send ShareFetch with the next epoch of the session and return the whole reply."""
        part = FetchPartition(partition_index=self.group.topic.partition, acknowledgement_batches=batches(acks))
        topics = (FetchTopic(topic_id=self.topic_id, partitions=(part,)),)
        named = {
            "group_id": self.group.name, "member_id": self.member_id, "share_session_epoch": self.session_epoch,
            "max_wait_ms": SHORT_WAIT_MS, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500,
            "batch_size": 500, "topics": topics, **fields,
        }  # fmt: skip
        reply = self.leader.call(ShareFetchRequest(**named), version)
        self._count_session(named["share_session_epoch"], reply.error_code)
        return reply

    def fetch(self, acks: Acks = (), **fields: Any) -> "ShareFetched":
        found = ShareFetched(self.fetch_reply(acks, **fields))
        self.delivered |= found.counts.keys()
        return found

    def acquire(self, offset: int) -> "ShareFetched":
        """Fetch until the record at `offset` is acquired."""

        def poll() -> ShareFetched | None:
            found = self.fetch()
            return found if offset in found.counts else None

        return self.group.cluster.eventually(f"the record {offset} to be acquired", poll)

    def acknowledge(self, acks: Acks, **fields: Any) -> int:
        """Send ShareAcknowledge and return the error code of the request or, if it has none, of the partition."""
        part = AcknowledgePartition(partition_index=self.group.topic.partition, acknowledgement_batches=batches(acks))
        named = {
            "group_id": self.group.name, "member_id": self.member_id, "share_session_epoch": self.session_epoch,
            "topics": (AcknowledgeTopic(topic_id=self.topic_id, partitions=(part,)),), **fields,
        }  # fmt: skip
        reply = self.leader.call(ShareAcknowledgeRequest(**named))
        self._count_session(named["share_session_epoch"], reply.error_code)
        return int(reply.error_code or only(only(reply.responses).partitions).error_code)

    def close_session(self) -> None:
        expect("error code of the last ShareFetch", 0, self.fetch(share_session_epoch=CLOSE, topics=()).error_code)

    def _count_session(self, sent: int, error: int) -> None:
        if not error:
            self.session_epoch = OPEN if sent == CLOSE else self.session_epoch + 1


class ShareFetched:
    """What one ShareFetch returned for the partition; `counts` are the delivery counts of acquired offsets."""

    def __init__(self, reply: Any) -> None:
        parts = [part for topic in reply.responses for part in topic.partitions]
        self.error_code = reply.error_code or next((part.error_code for part in parts if part.error_code), 0)
        self.acknowledge_error = next((part.acknowledge_error_code for part in parts), 0)
        self.lock_ms = reply.acquisition_lock_timeout_ms
        self.records = b"".join(part.records for part in parts)
        self.counts = {
            offset: acquired.delivery_count
            for part in parts for acquired in part.acquired_records
            for offset in range(acquired.first_offset, acquired.last_offset + 1)
        }  # fmt: skip


def batches(acks: Acks) -> tuple[AcknowledgementBatch, ...]:
    return tuple(
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
        for first, last, kind in acks
    )
