"""DescribeCluster (key 60): brokers and controller (KIP-700); 1 chooses the kind of end point (KIP-919), 2 shows fenced
brokers.
"""

from typing import Annotated

from reference.wire.schema import Bool, Int8, Int16, Int32, String, message, since, struct


@message(api_key=60, versions="0-2", flexible_from=0)
class DescribeClusterRequest:
    """What to include."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[Bool, since(2)] = False


@struct
class DescribeClusterBroker:
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, since(2)] = False


@message(api_key=60, versions="0-2", flexible_from=0)
class DescribeClusterResponse:
    """The brokers."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = -2147483648
