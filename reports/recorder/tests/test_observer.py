"""What single exchanges become: retries, sessions, aborted records, partial answers, and what cannot be decoded."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.fuzz.proxy.addresses import addresses, rewrite_addresses
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from highwater.reference.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from highwater.reference.wire.messages.metadata import (
    Coordinator,
    DescribeClusterBroker,
    DescribeClusterResponse,
    FindCoordinatorResponse,
)
from highwater.reference.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from highwater.reference.wire.messages.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from highwater.reference.wire.records import build_batch, stamp
from highwater.reports.audit import audit
from highwater.reports.importers.native import read
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.recorder.exchanges import Cluster, Link
from highwater.reports.recorder.observer import Observer
from highwater.reports.recorder.recording import HEADER_BYTES, Recording
from highwater.reports.recorder.run import config_changes
from highwater.spec.formats.history import Config, trailer

NOT_LEADER, MESSAGE_TOO_LARGE, ILLEGAL_GENERATION = 6, 10, 22


class RecordedTraffic:
    """Passes requests and replies to an observer in order, and returns what it recorded."""

    def __init__(self) -> None:
        self.sink = io.BytesIO()
        self.recording = Recording(self.sink, 0)
        self.link = Link(Cluster(self.recording), ("broker", 9092))
        self.observer = Observer()

    def ask(self, request: Any, reply: Any | None) -> None:
        finish = self.observer.request(self.link, type(request).__name__.removesuffix("Request"), request)
        assert finish is not None
        finish(reply)

    def produce(self, value: bytes, *, error: int | None, offset: int = -1, sequence: int = 0, **more: Any) -> None:
        """Produce one record; `error` None means that the connection is lost."""
        batch = build_batch(
            [(0, None, value, ())],
            producer_id=more.pop("producer_id", 7),
            base_sequence=sequence,
            producer_epoch=0,
            **more,
        )
        part = PartitionProduceData(index=0, records=bytes(batch))
        request = ProduceRequest(acks=-1, topic_data=(TopicProduceData(name="t", partition_data=(part,)),))
        partition_reply = PartitionProduceResponse(index=0, error_code=error or 0, base_offset=offset)
        reply = ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(partition_reply,)),))
        self.ask(request, None if error is None else reply)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.sink.getvalue().splitlines()[1:]]

    def violations(self, path: Path) -> list[str]:
        """Return the violations in the history recorded so far."""
        end = msgspec.json.encode(trailer(len(self.events()) + 1))
        path.write_bytes(self.sink.getvalue() + end + b"\n")
        return [finding.name for finding in audit(path).findings if finding.severity == "violation"]

    def field_values(self, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(event.get(name) for name in names) for event in self.events()]


def test_a_retry_is_the_same_send_until_it_is_answered() -> None:
    traffic = RecordedTraffic()
    traffic.produce(b"a", error=NOT_LEADER)
    traffic.produce(b"a", error=None)
    traffic.produce(b"a", error=0, offset=5)
    traffic.produce(b"a", error=0, offset=6, sequence=1)
    assert traffic.field_values("type", "value", "offset") == [
        ("invoke", "a [7/0/0]", None), ("ok", None, 5), ("invoke", "a [7/0/1]", None), ("ok", None, 6),
    ]  # fmt: skip


def test_an_acknowledged_batch_that_is_sent_again_is_no_new_send() -> None:
    traffic = RecordedTraffic()
    for value in (b"a", b"a", b"other, in the same place"):
        traffic.produce(value, error=0, offset=5)
    assert traffic.field_values("type", "value") == [("invoke", "a [7/0/0]"), ("ok", None)]


def test_another_record_in_the_place_of_one_without_an_answer_is_another_send() -> None:
    traffic = RecordedTraffic()
    traffic.produce(b"a", error=None)
    traffic.produce(b"b", error=0, offset=5)
    assert traffic.field_values("type", "value", "offset") == [
        ("invoke", "a [7/0/0]", None), ("invoke", "b [7/0/0]", None), ("ok", None, 5),
    ]  # fmt: skip


def test_a_record_in_the_place_of_a_refused_one_of_an_earlier_transaction_is_another_send() -> None:
    traffic = RecordedTraffic()
    traffic.produce(b"a", error=NOT_LEADER, transactional=True)
    traffic.ask(EndTxnRequest(transactional_id="x", producer_id=7), EndTxnResponse())
    traffic.produce(b"a", error=0, offset=5, transactional=True)
    sent = [event for event in traffic.events() if event["f"] == "send"]
    sends = [(event["type"], event.get("txn"), event.get("offset")) for event in sent]
    assert sends == [("invoke", "7 1", None), ("invoke", "7 2", None), ("ok", None, 5)]


@pytest.mark.parametrize(("position", "partition", "expected"), [(-7, 0, [None]), (3, -7, []), (-1, 0, [-1])])
def test_numbers_that_mean_nothing_are_left_out_and_so_are_partitions_that_cannot_exist(
    position: int, partition: int, expected: list[int | None]
) -> None:
    traffic = RecordedTraffic()
    traffic.ask(fetch_of((partition, position)), None)
    assert [event.get("position") for event in traffic.events() if event["type"] == "invoke"] == expected


def test_the_transaction_of_a_fenced_instance_is_not_that_of_the_next_one() -> None:
    traffic = RecordedTraffic()
    for epoch in (0, 2):
        offsets = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=7, producer_epoch=epoch)
        traffic.ask(offsets, TxnOffsetCommitResponse())
    traffic.ask(EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=2, committed=True), EndTxnResponse())
    ended = [event["txn"] for event in traffic.events() if event["f"] == "end_txn"]
    begun = [(event["txn"], event.get("producer_epoch")) for event in traffic.events() if event["f"] == "begin_txn"]
    assert begun == [("x 1", 0), ("x 2", 2)]
    assert ended == ["x 2", "x 2"]


def test_deleted_offsets_are_those_that_the_coordinator_deleted() -> None:
    traffic = RecordedTraffic()
    parts = tuple(OffsetDeleteRequestPartition(partition_index=number) for number in (0, 1))
    request = OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name="t", partitions=parts),))
    for codes in ((0, 86), (86, 86)):
        answers = tuple(
            OffsetDeleteResponsePartition(partition_index=number, error_code=code) for number, code in enumerate(codes)
        )
        traffic.ask(request, OffsetDeleteResponse(topics=(OffsetDeleteResponseTopic(name="t", partitions=answers),)))
    ends = [(event["type"], event["value"]) for event in traffic.events() if event["type"] != "invoke"]
    assert ends == [("ok", ["t-0"]), ("fail", ["t-0", "t-1"])]
    assert traffic.observer.request(traffic.link, "OffsetDelete", OffsetDeleteRequest(group_id="g")) is None


def test_committed_offsets_of_a_topic_without_a_name_are_left_out() -> None:
    traffic = RecordedTraffic()
    nameless = OffsetFetchResponseTopic(name="", partitions=(OffsetFetchResponsePartition(partition_index=0),))
    traffic.ask(OffsetFetchRequest(group_id="g"), OffsetFetchResponse(topics=(nameless,)))
    assert traffic.field_values("type", "value")[1:] == [("ok", {})]


def test_a_batch_that_the_broker_knew_already_is_acknowledged_at_an_unknown_place() -> None:
    traffic = RecordedTraffic()
    traffic.produce(b"a", error=46)
    assert traffic.field_values("type", "offset")[1:] == [("ok", -1)]


@pytest.mark.parametrize(("lost_before", "kind"), [(False, "fail"), (True, "info")])
def test_a_refusal_is_certain_only_for_a_single_attempt(lost_before: bool, kind: str) -> None:
    traffic = RecordedTraffic()
    if lost_before:
        traffic.produce(b"a", error=None)
    traffic.produce(b"a", error=MESSAGE_TOO_LARGE)
    assert [event["type"] for event in traffic.events()] == ["invoke", kind]


def test_processes_have_one_operation_open() -> None:
    traffic = RecordedTraffic()
    traffic.produce(b"a", error=None)
    traffic.produce(b"b", error=0, offset=0, sequence=1)
    traffic.produce(b"c", error=0, offset=1, sequence=2)
    assert traffic.field_values("process") == [(0,), (1,), (1,), (1,), (1,)]


def fetch_of(*positions: tuple[int, int], session: int = 0, epoch: int = -1, **more: Any) -> FetchRequest:
    parts = tuple(FetchPartition(partition=number, fetch_offset=at, current_leader_epoch=3) for number, at in positions)
    topics = (FetchTopic(topic="t", partitions=parts),) if parts else ()
    return FetchRequest(session_id=session, session_epoch=epoch, topics=topics, **more)


def fetched(*parts: PartitionData, session: int = 0) -> FetchResponse:
    return FetchResponse(session_id=session, responses=(FetchableTopicResponse(topic="t", partitions=parts),))


def test_partitions_of_a_session_that_are_not_named_are_read_on() -> None:
    traffic = RecordedTraffic()
    traffic.ask(
        fetch_of((0, 4), (1, 9), epoch=0), fetched(PartitionData(partition_index=0, high_watermark=4), session=5)
    )
    traffic.ask(
        fetch_of((0, 6), session=5, epoch=1), fetched(PartitionData(partition_index=1, high_watermark=9), session=5)
    )
    gone = (ForgottenTopic(topic="t", partitions=(1,)),)
    traffic.ask(fetch_of(session=5, epoch=2, forgotten_topics_data=gone), fetched(session=5))
    asked = [(event["partition"], event["position"]) for event in traffic.events() if event["type"] == "invoke"]
    assert asked == [(0, 4), (1, 9), (0, 6), (1, 9), (0, 6)]
    ends = [(each["partition"], each["high_watermark"]) for each in traffic.events() if each["type"] == "ok"]
    assert ends == [(0, 4), (1, 9)]


def batch_at(offset: int, value: bytes, **more: Any) -> bytes:
    batch = bytearray(build_batch([(0, None, value, ())], producer_epoch=0, **more))
    stamp(batch, 0, offset, 3)
    return bytes(batch)


@pytest.mark.parametrize(
    ("isolation", "values"),
    [(1, ["x [7/0/9]", "c [8/0/0]"]), (0, ["x [7/0/9]", "a [7/0/0]", "b [7/0/1]", "c [8/0/0]"])],
)
def test_aborted_records_are_left_out_as_a_consumer_leaves_them_out(isolation: int, values: list[str]) -> None:
    data = b"".join(
        [
            batch_at(3, b"x", producer_id=7, base_sequence=9),
            batch_at(4, b"a", producer_id=7, base_sequence=0, transactional=True),
            batch_at(5, b"b", producer_id=7, base_sequence=1, transactional=True),
            batch_at(6, b"c", producer_id=8, base_sequence=0, transactional=True),
        ]
    )
    aborted = (AbortedTransaction(producer_id=7, first_offset=4),)
    part = PartitionData(partition_index=0, high_watermark=7, records=data, aborted_transactions=aborted)
    traffic = RecordedTraffic()
    traffic.ask(fetch_of((0, 4), isolation_level=isolation), fetched(part))
    (event,) = [event for event in traffic.events() if event["type"] == "ok"]
    assert [value for _, value in event["value"]] == values
    assert (event["position"], event["leader_epoch"]) == (4, 3)


def test_what_cannot_be_decoded_leaves_a_line_that_opens_the_verdict(tmp_path: Any) -> None:
    traffic = RecordedTraffic()
    part = PartitionData(partition_index=0, high_watermark=7, records=bytes(16) + b"\x01" + bytes(60))
    traffic.ask(fetch_of((0, 4)), fetched(part))
    traffic.recording.finish()
    (tmp_path / "history.ndjson").write_bytes(traffic.sink.getvalue())
    quarantine = Quarantine()
    _, events = read(str(tmp_path / "history.ndjson"), quarantine)
    assert [event.type for event in events] == ["invoke", "info"]
    assert [bad.matters for bad in quarantine.lines] == [True]


def test_a_lost_connection_is_info() -> None:
    traffic = RecordedTraffic()
    traffic.ask(fetch_of((0, 4)), None)
    assert traffic.field_values("type", "error")[1] == ("info", "connection lost")


def test_the_end_of_a_transaction_may_be_tried_again_and_the_next_is_another() -> None:
    traffic = RecordedTraffic()
    commit = EndTxnRequest(transactional_id="x", producer_id=7, committed=True)
    for sequence in range(2):
        traffic.produce(b"a", error=0, offset=sequence, sequence=sequence, transactional=True)
        traffic.ask(commit, None)
        traffic.ask(commit, EndTxnResponse())
    ends = [(event["type"], event.get("txn")) for event in traffic.events() if event["f"] == "end_txn"]
    assert ends[:4] == [("invoke", "7 1"), ("info", None), ("invoke", "7 1"), ("ok", "7 1")]
    assert ends[4:] == [("invoke", "7 2"), ("info", None), ("invoke", "7 2"), ("ok", "7 2")]
    assert traffic.observer.request(traffic.link, "EndTxn", commit) is None


def test_a_commit_taken_in_part_is_that_part() -> None:
    traffic = RecordedTraffic()
    parts = tuple(OffsetCommitRequestPartition(partition_index=number, committed_offset=10) for number in (0, 1))
    request = OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=parts),))
    codes = [(0, 0), (1, 3)], [(0, ILLEGAL_GENERATION), (1, ILLEGAL_GENERATION)]
    for each in codes:
        partition_replies = tuple(
            OffsetCommitResponsePartition(partition_index=number, error_code=code) for number, code in each
        )
        traffic.ask(
            request, OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=partition_replies),))
        )
    ends = [(event["type"], event["value"]) for event in traffic.events() if event["type"] != "invoke"]
    assert ends == [("ok", {"t-0": 10}), ("fail", {"t-0": 10, "t-1": 10})]


def test_only_the_groups_that_are_wanted_are_recorded() -> None:
    traffic = RecordedTraffic()
    traffic.link.cluster.groups = ("wanted",)
    assert traffic.observer.request(traffic.link, "OffsetCommit", OffsetCommitRequest(group_id="other")) is None
    assert traffic.events() == []


def test_what_members_of_an_epoch_are_granted_is_held_against_each_other(tmp_path: Path) -> None:
    traffic = RecordedTraffic()
    traffic.link.cluster.topics[b"i" * 16] = "t"

    def beat(member: str, epoch: int, partitions: tuple[int, ...] | None, instance: str | None = None) -> None:
        parts = (HeartbeatTopicPartitions(topic_id=b"i" * 16, partitions=partitions or ()),)
        granted = None if partitions is None else HeartbeatAssignment(topic_partitions=parts)
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, instance_id=instance)
        traffic.ask(request, ConsumerGroupHeartbeatResponse(member_id=member, member_epoch=epoch, assignment=granted))

    beat("a", 1, (0, 1), instance="static a")
    beat("a", 1, None)
    beat("a", 2, (0,))
    beat("b", 2, (1,))
    granted = [each for each in traffic.events() if each["type"] == "ok"]
    assert [(each["f"], each["member_id"], each.get("instance_id"), each["generation_id"], each["value"])
            for each in granted] == [
        ("sync", "a", "static a", 1, ["t-0", "t-1"]), ("sync", "a", "static a", 2, ["t-0"]),
        ("sync", "b", None, 2, ["t-1"]),
    ]  # fmt: skip
    assert traffic.violations(tmp_path / "history.ndjson") == []
    beat("b", 2, (0, 1))
    assert traffic.violations(tmp_path / "history.ndjson") == ["double-ownership"]


def test_addresses_lead_to_us() -> None:
    replies = {
        "FindCoordinator": (
            FindCoordinatorResponse(
                host="a", port=1, coordinators=(Coordinator(host="b", port=2), Coordinator(port=-1))
            )
        ),
        "DescribeCluster": DescribeClusterResponse(brokers=(DescribeClusterBroker(host="a", port=1),)),
    }
    for name, reply in replies.items():
        assert ("a", 1) in set(addresses(name, reply))
        ours = rewrite_addresses(name, reply, lambda address: ("proxy", 100 + address[1]))
        assert {host for host, _ in addresses(name, ours)} == {"proxy"}
        assert ("proxy", 101) in set(addresses(name, ours))


def test_the_header_says_what_came_to_light_later() -> None:
    traffic = RecordedTraffic()
    traffic.produce(b"a", error=0, offset=0)
    traffic.recording.update_config(unclean_election=False)
    head = traffic.sink.getvalue()[:HEADER_BYTES]
    assert head.endswith(b" \n")
    config = json.loads(head)["value"]
    assert (config["acks"], config["idempotence"], config["unclean_election"]) == ("all", True, False)
    assert [event["index"] for event in traffic.events()] == [1, 2]


def test_the_weakest_promise_counts() -> None:
    traffic = RecordedTraffic()
    traffic.produce(b"a", error=0, offset=0)
    traffic.produce(b"b", error=0, offset=1, producer_id=-1)
    traffic.produce(b"c", error=0, offset=2)
    assert traffic.recording.config.idempotence is False
    settings: dict[str, str | None] = {
        "unclean.leader.election.enable": "false", "cleanup.policy": "delete", "retention.ms": "604800000",
        "retention.bytes": "-1", "min.insync.replicas": "2",
    }  # fmt: skip
    first = config_changes(Config(), settings)
    assert first == {"unclean_election": False, "compaction": False, "retention": False, "min_insync_replicas": 2}
    weaker = settings | {"unclean.leader.election.enable": "true", "min.insync.replicas": "1", "retention.ms": "1000"}
    known = Config(**first)
    assert config_changes(known, weaker) == {
        "unclean_election": True, "compaction": False, "retention": True, "min_insync_replicas": 1,
    }  # fmt: skip
