"""All planted wire defects by name: the public bug, the oracle that detects it, and its implementation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from highwater.errors import UsageError
from highwater.fuzz.wire.defects import answers, batches, lengths, leniency, places, refused, requests, slowness
from highwater.fuzz.wire.defects.answers import ResponseDefect
from highwater.fuzz.wire.defects.harm import RequestDefect


@dataclass(frozen=True, slots=True)
class WireDefect:
    """One defect. `shows` is the fuzzer's oracle for it; without functions, DefectiveConnection implements it."""

    bug: str
    shows: str
    on_request: RequestDefect | None = None
    on_response: ResponseDefect | None = None
    outlasts_restart: bool = False
    """Whether the broker only starts again with empty data."""


WIRE_DEFECTS: Final[Mapping[str, WireDefect]] = {
    # the process
    "CollectionLengthOom": WireDefect("CVE-2022-34917, KAFKA-14063", "memory", lengths.collection_length),
    "JoinGroupOom": WireDefect("KAFKA-2878", "memory", lengths.join_group_collection),
    "FrameSizeOom": WireDefect("KAFKA-4090, KIP-498", "memory"),
    "SnappyBomb": WireDefect("rskafka #141", "memory", batches.snappy_claim),
    "GzipBomb": WireDefect("rskafka #141, for gzip", "memory", batches.gzip_bomb),
    "ZstdBomb": WireDefect("rskafka #141, for zstd", "memory", batches.zstd_bomb),
    "DecoderMalloc": WireDefect("Redpanda #8513", "alive", lengths.string_length),
    "NegativeLength": WireDefect("Sarama's decoder", "alive", lengths.negative_length),
    "MultiTopicFetch": WireDefect("Redpanda #180", "alive", requests.fetch_of_topics),
    "NegativeBatchLength": WireDefect("franz-go", "alive", batches.negative_batch),
    "FlexibleDecoderPanic": WireDefect("Sarama #3543", "alive", lengths.tag_section),
    "NestedMessageSets": WireDefect("unbounded recursion over nested message sets", "alive", batches.nested_sets),
    "NullText": WireDefect("null in a non-nullable string", "alive", lengths.null_text),
    "NoPartitions": WireDefect("Redpanda #180, for a topic without partitions", "alive", requests.no_partitions),
    "NegativePartition": WireDefect("a partition index used without a check", "alive", requests.negative_partition),
    "MemberMetadata": WireDefect("librdkafka before 1.9: JoinGroup's metadata", "alive", requests.member_metadata),
    "TokenFirst": WireDefect("a login message out of order", "alive", requests.token_first),
    "PoisonedStart": WireDefect(
        "a stored topic that ends every start", "alive", requests.topic_that_poisons, outlasts_restart=True
    ),
    "HandlerRaises": WireDefect("an exception that no handler catches", "stack", requests.raising),
    "DescriptorLeak": WireDefect("a connection closed without its socket", "deadline"),
    # the whole broker
    "MetadataLeak": WireDefect("1 MB kept for every Metadata request", "leak", slowness.metadata_kept),
    "RefusedLeak": WireDefect("100 kB kept for every request that does not decode", "leak", slowness.refused_kept),
    "HeartbeatLeak": WireDefect("40 kB kept for every Heartbeat", "leak", slowness.heartbeat_kept),
    "GroupNameLeak": WireDefect("40 kB kept for every group that is described", "leak", slowness.group_names_kept),
    "FetchLeak": WireDefect("1 kB kept for every Fetch", "leak", slowness.fetch_kept),
    "ConfigsLeak": WireDefect("1 kB kept for every DescribeConfigs", "leak", slowness.configs_kept),
    "CoordinatorStall": WireDefect("an unknown type of key blocks all for 3 s", "stall", slowness.coordinator_sleeps),
    "LongNameStall": WireDefect("a name of 30,000 bytes blocks all for 2 s", "stall", slowness.long_names_slow),
    "TagCountStall": WireDefect("a count of tags is iterated for 3 s", "stall", slowness.tags_counted),
    # refused, but carried out
    "CorruptAppended": WireDefect(
        "CORRUPT_MESSAGE, but the batch is appended", "state", refused.append_corrupt, refused.report_corrupt
    ),
    "CommitStored": WireDefect(
        "UNKNOWN_MEMBER_ID, but the offset is stored", "state", refused.store_commit, refused.report_unknown_member
    ),
    "RecordsDeleted": WireDefect(
        "OFFSET_OUT_OF_RANGE, but the records are deleted", "state", refused.delete_beyond, refused.report_out_of_range
    ),
    # no response
    "CoordinatorHang": WireDefect("a handler without a default branch", "deadline", requests.unknown_coordinator),
    "SilentDrop": WireDefect("a response that is never sent", "deadline", on_response=answers.dropped),
    "VarintHang": WireDefect("Sarama #3543, for endless varints", "deadline", lengths.long_varint),
    "TagCountHang": WireDefect("Sarama #3543, for the tag count", "deadline", lengths.tag_count),
    "HalfClosedKept": WireDefect("an ignored end of stream after half a frame", "deadline"),
    "SplitFrameHang": WireDefect("one socket read treated as one frame", "relation"),
    # wrong responses: protocol
    "WrongCorrelationId": WireDefect(
        "the correlation id of another request", "correlation", on_response=answers.correlation_id
    ),
    "OutOfTurn": WireDefect("responses in another order than requests", "correlation"),
    "AcksZeroAnswered": WireDefect("a response to acks=0", "correlation"),
    "CutAnswer": WireDefect("a size that is one byte too small", "decode", on_response=answers.cut),
    "NullTopicName": WireDefect("null in a non-nullable string", "decode", on_response=answers.null_topics),
    "NoSuchErrorCode": WireDefect("an unknown error code", "error-code", on_response=answers.error_code),
    "WrongErrorFamily": WireDefect("an error code of another API", "error-code", on_response=answers.error_family),
    "UnknownTagRefused": WireDefect("unknown tags rejected in spite of KIP-482", "relation", requests.unknown_tag),
    # malformed requests that are accepted
    "NegativeCountEmpty": WireDefect("kfake: a negative count is an empty array", "refuse", leniency.negative_count),
    "NullIsEmpty": WireDefect("null in a non-nullable string is an empty one", "refuse", leniency.null_string),
    "CountTruncated": WireDefect("a count beyond the frame is an empty array", "refuse", leniency.long_count),
    "MissingIsZero": WireDefect("kfake: missing bytes are zeros", "refuse", leniency.missing_zeros),
    "AcksUnchecked": WireDefect("acks of 5 handled like 1", "refuse", leniency.any_acks),
    "IsolationUnchecked": WireDefect(
        "an unknown isolation level is read_uncommitted", "refuse", leniency.any_isolation
    ),
    # wrong responses: stored data
    "OffsetDeltaTrusted": WireDefect("KAFKA-6554", "invariant", batches.offset_delta),
    "ChecksumIgnored": WireDefect("a batch stored without a CRC check", "invariant", batches.checksum),
    "CraftedTransaction": WireDefect("CVE-2018-17196", "invariant", batches.crafted_transaction),
    "DuplicateAppended": WireDefect("Bufstream 0.1.0: torn idempotence", "invariant", batches.sequence_numbers),
    "WrongBaseOffset": WireDefect(
        "Bufstream 0.1.0: a write at another offset", "invariant", on_response=answers.base_offset
    ),
    "LostRecord": WireDefect("Bufstream 0.1.0: a lost write", "invariant", batches.last_record),
    "StableOffsetBeyond": WireDefect(
        "KIP-890: wrong last stable offset", "invariant", on_response=answers.stable_offset
    ),
    "AbortedVisible": WireDefect("Bufstream 0.1.0, KIP-890: aborted read", "invariant", on_response=answers.aborted),
    "CommitForgotten": WireDefect(
        "offsets lost by a coordinator move", "invariant", on_response=answers.committed_offset
    ),
    "AssignmentCut": WireDefect(
        "an assignment that differs from the leader's", "invariant", on_response=answers.assignment
    ),
    "GenerationRepeats": WireDefect("a repeated generation", "invariant", on_response=answers.generation),
    "CommitMetadataLost": WireDefect(
        "an offset without its metadata", "invariant", on_response=places.metadata_of_commit
    ),
    "ProducerIdRepeats": WireDefect("one producer id for two producers", "invariant", on_response=places.producer_id),
    "AbortCommits": WireDefect("Bufstream 0.1.0, KIP-890: torn transactions", "invariant", places.aborts_commit),
    "SubscriptionLost": WireDefect("an assignment without subscriptions", "invariant", places.subscription_lost),
    # wrong responses: partitions
    "NegativeThrottle": WireDefect("a negative throttle time", "invariant", on_response=places.negative_throttle),
    "PastHighWatermark": WireDefect("records before they are committed", "invariant", on_response=places.low_watermark),
    "BeyondTheEnd": WireDefect("no error for a reader out of range", "invariant", on_response=places.beyond_the_end),
    "StaleLeader": WireDefect(
        "metadata with a leader that does not exist", "invariant", on_response=places.stale_leader
    ),
    "EpochIgnored": WireDefect("KIP-320: leader epochs not checked", "invariant", places.epoch_ignored),
    "EndForNever": WireDefect("KIP-79: an offset for a future timestamp", "invariant", places.end_for_never),
    "DeletesTooLittle": WireDefect("KIP-107: off by one", "invariant", places.deletes_too_little),
}


def check_defects(names: Iterable[str]) -> None:
    """Raise UsageError for an unknown name."""
    for name in names:
        if name not in WIRE_DEFECTS:
            raise UsageError(f"unknown wire defect {name!r}", hint=f"use one of {', '.join(WIRE_DEFECTS)}")
