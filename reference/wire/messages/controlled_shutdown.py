"""ControlledShutdown (key 7): a broker asks the controller to move its leaders away.

2 carries the broker epoch (KIP-380). Version 0 is the only request with header version 0, which has no client id.
"""

from typing import Annotated

from reference.wire.schema import Int16, Int32, Int64, String, ignorable, message, since, struct


@message(api_key=7, versions="0-3", flexible_from=3)
class ControlledShutdownRequest:
    """The broker that wants to stop."""

    broker_id: Int32 = 0
    broker_epoch: Annotated[Int64, since(2), ignorable] = -1


@struct
class RemainingPartition:
    topic_name: String = ""
    partition_index: Int32 = 0


@message(api_key=7, versions="0-3", flexible_from=3)
class ControlledShutdownResponse:
    """The partitions that it still leads; empty when it may stop."""

    error_code: Int16 = 0
    remaining_partitions: tuple[RemainingPartition, ...] = ()
