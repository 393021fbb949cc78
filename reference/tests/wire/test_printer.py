"""Messages and bytes are printed in a readable form."""

from textwrap import dedent

from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.groups import SyncGroupResponse
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.printer import brief, describe, hexdump

SHOWN = " ".join(["61"] * 32)


def test_a_message_field_by_field() -> None:
    partition = PartitionProduceData(index=3, records=b"a" * 40)
    message = ProduceRequest(acks=-1, topic_data=(TopicProduceData(name="t", partition_data=(partition,)),))
    assert describe(message) == dedent(f"""\
        ProduceRequest
          transactional_id: null
          acks: -1
          timeout_ms: 0
          topic_data: 1
            [0]: TopicProduceData
              name: 't'
              topic_id: 16 bytes 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
              partition_data: 1
                [0]: PartitionProduceData
                  index: 3
                  records: 40 bytes {SHOWN}…""")


def test_structs_and_plain_arrays() -> None:
    text = describe(FetchRequest(topics=(FetchTopic(topic="a", partitions=(FetchPartition(),)),)))
    assert "  replica_state: ReplicaState\n    replica_id: -1\n" in text
    assert "  forgotten_topics_data: []\n" in text
    assert describe(SyncGroupResponse()).endswith("assignment: 0 bytes")


def test_hexdump() -> None:
    assert hexdump(b"") == ""
    assert hexdump(bytes(range(0x3A, 0x4C))).splitlines() == [
        "00000000  3a 3b 3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49  :;<=>?@ABCDEFGHI",
        "00000010  4a 4b                                            JK",
    ]


def test_in_one_line_a_message_has_only_what_differs_from_its_defaults() -> None:
    asked = FetchRequest(min_bytes=1, topics=(FetchTopic(topic="t", partitions=(FetchPartition(fetch_offset=5),)),))
    shown = "topics=[FetchTopic(topic='t', partitions=[FetchPartition(fetch_offset=5)])]"
    assert brief(asked) == f"FetchRequest(min_bytes=1, {shown})"
