"""FindCoordinator (key 10): which broker coordinates a group, transactional id or share group.

1 has key types, 4 takes many keys at once (KIP-699), 6 share groups (KIP-932).
"""

from typing import Annotated

from reference.wire.schema import Int8, Int16, Int32, String, ignorable, message, since, struct, until, versions


@message(api_key=10, versions="0-6", flexible_from=3)
class FindCoordinatorRequest:
    """One key up to 3, `coordinator_keys` since 4."""

    key: Annotated[String, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], since(4)] = ()


@struct
class Coordinator:
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, ignorable] = ""


@message(api_key=10, versions="0-6", flexible_from=3)
class FindCoordinatorResponse:
    """One coordinator in line up to 3, `coordinators` since 4."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[String | None, versions(1, 3), ignorable] = ""
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[String, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], since(4)] = ()
