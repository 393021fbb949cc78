"""Every planted wire defect by name: the public bug that it repeats, and what it does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from reference.drivers.defects import answers, batches, lengths, places, requests
from reference.drivers.defects.answers import Answer
from reference.drivers.defects.harm import Take
from spec.formats.verdict import UsageError


@dataclass(frozen=True, slots=True)
class WireDefect:
    """`shows` is the oracle of the fuzzer that sees it; without `take` and `answer` it is of the stream of bytes."""

    bug: str
    shows: str
    take: Take | None = None
    answer: Answer | None = None


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
    "NestedMessageSets": WireDefect("a reader that recurses as deep as it is told", "alive", batches.nested_sets),
    "NullText": WireDefect("null where none may be", "alive", lengths.null_text),
    "NoPartitions": WireDefect("Redpanda #180, for none", "alive", requests.no_partitions),
    "NegativePartition": WireDefect("an index that is sent", "alive", requests.negative_partition),
    "MemberMetadata": WireDefect("librdkafka before 1.9: JoinGroup's metadata", "alive", requests.member_metadata),
    "TokenFirst": WireDefect("a login out of order", "alive", requests.token_first),
    "HandlerRaises": WireDefect("an exception that nobody expected", "stack", requests.raising),
    "DescriptorLeak": WireDefect("a connection that is cut, and its socket kept", "deadline"),
    # silence
    "CoordinatorHang": WireDefect("a handler without a default branch", "deadline", requests.unknown_coordinator),
    "SilentDrop": WireDefect("an answer that is lost", "deadline", answer=answers.dropped),
    "VarintHang": WireDefect("Sarama #3543, for varints without an end", "deadline", lengths.long_varint),
    "TagCountHang": WireDefect("Sarama #3543, for a count of tags", "deadline", lengths.tag_count),
    "HalfClosedKept": WireDefect("half a frame, and the end of the stream unseen", "deadline"),
    "SplitFrameHang": WireDefect("one read taken for one frame", "relation"),
    # lies about the wire
    "WrongCorrelationId": WireDefect("an answer to another request", "correlation", answer=answers.correlation_id),
    "OutOfTurn": WireDefect("answers in another order than requests", "correlation"),
    "AcksZeroAnswered": WireDefect("an answer where none is asked", "correlation"),
    "CutAnswer": WireDefect("a size that counts one too few", "decode", answer=answers.cut),
    "NullTopicName": WireDefect("null where none may be", "decode", answer=answers.null_topics),
    "NoSuchErrorCode": WireDefect("an error code of its own", "error-code", answer=answers.error_code),
    "WrongErrorFamily": WireDefect("an error of another API", "error-code", answer=answers.error_family),
    "UnknownTagRefused": WireDefect("KIP-482 read as a list of known tags", "relation", requests.unknown_tag),
    # lies about what is stored
    "OffsetDeltaTrusted": WireDefect("KAFKA-6554", "invariant", batches.offset_delta),
    "ChecksumIgnored": WireDefect("a batch stored unread", "invariant", batches.checksum),
    "CraftedTransaction": WireDefect("CVE-2018-17196", "invariant", batches.crafted_transaction),
    "DuplicateAppended": WireDefect("Bufstream 0.1.0: torn idempotence", "invariant", batches.sequence_numbers),
    "WrongBaseOffset": WireDefect(
        "Bufstream 0.1.0: a write that is elsewhere", "invariant", answer=answers.base_offset
    ),
    "LostRecord": WireDefect("Bufstream 0.1.0: a write that is lost", "invariant", batches.last_record),
    "StableOffsetBeyond": WireDefect("KIP-890: the end of what is stable", "invariant", answer=answers.stable_offset),
    "AbortedVisible": WireDefect("Bufstream 0.1.0, KIP-890: aborted read", "invariant", answer=answers.aborted),
    "CommitForgotten": WireDefect("a coordinator that moved", "invariant", answer=answers.committed_offset),
    "AssignmentCut": WireDefect("another assignment than the leader's", "invariant", answer=answers.assignment),
    "GenerationRepeats": WireDefect("a generation given twice", "invariant", answer=answers.generation),
    "CommitMetadataLost": WireDefect("an offset without its metadata", "invariant", answer=places.metadata_of_commit),
    "ProducerIdRepeats": WireDefect("one id for two producers", "invariant", answer=places.producer_id),
    "AbortCommits": WireDefect("Bufstream 0.1.0, KIP-890: torn transactions", "invariant", places.aborts_commit),
    "SubscriptionLost": WireDefect("a leader that shares out blindly", "invariant", places.subscription_lost),
    # lies about a partition
    "NegativeThrottle": WireDefect("a quota that has gone below zero", "invariant", answer=places.negative_throttle),
    "PastHighWatermark": WireDefect("records before they are committed", "invariant", answer=places.low_watermark),
    "BeyondTheEnd": WireDefect("a reader out of range is not told", "invariant", answer=places.beyond_the_end),
    "StaleLeader": WireDefect("a leader that is gone", "invariant", answer=places.stale_leader),
    "EpochIgnored": WireDefect("KIP-320: a reader that knows better", "invariant", places.epoch_ignored),
    "EndForNever": WireDefect("KIP-79: an offset of a time to come", "invariant", places.end_for_never),
    "DeletesTooLittle": WireDefect("KIP-107: off by one", "invariant", places.deletes_too_little),
}


def check_defects(names: Iterable[str]) -> None:
    """UsageError for a name that is none."""
    for name in names:
        if name not in WIRE_DEFECTS:
            raise UsageError(f"no wire defect {name!r}", mend=f"known: {', '.join(WIRE_DEFECTS)}")
