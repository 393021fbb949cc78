"""WriteTxnMarkers (key 27): a transaction coordinator tells leaders how transactions ended (KIP-98).

1 is flexible, 2 tells the transaction version (KIP-1228).
"""

from typing import Annotated

from reference.wire.schema import Bool, Int8, Int16, Int32, Int64, String, ignorable, message, since, struct


@struct
class WritableTxnMarkerTopic:
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@struct
class WritableTxnMarker:
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: tuple[WritableTxnMarkerTopic, ...] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, since(2), ignorable] = 0


@message(api_key=27, versions="0-2", flexible_from=1)
class WriteTxnMarkersRequest:
    """What became of each transaction, and in which partitions."""

    markers: tuple[WritableTxnMarker, ...] = ()


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    name: String = ""
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = ()


@struct
class WritableTxnMarkerResult:
    producer_id: Int64 = 0
    topics: tuple[WritableTxnMarkerTopicResult, ...] = ()


@message(api_key=27, versions="0-2", flexible_from=1)
class WriteTxnMarkersResponse:
    """One error code for each partition of each transaction."""

    markers: tuple[WritableTxnMarkerResult, ...] = ()
