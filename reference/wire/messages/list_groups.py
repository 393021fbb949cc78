"""ListGroups (key 16): the groups of one coordinator; 4 filters by state (KIP-518), 5 by type (KIP-848)."""

from typing import Annotated

from reference.wire.schema import Int16, Int32, String, ignorable, message, since, struct


@message(api_key=16, versions="0-5", flexible_from=3)
class ListGroupsRequest:
    """Which states and types to list; empty is all."""

    states_filter: Annotated[tuple[String, ...], since(4)] = ()
    types_filter: Annotated[tuple[String, ...], since(5)] = ()


@struct
class ListedGroup:
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, since(4), ignorable] = ""
    group_type: Annotated[String, since(5), ignorable] = ""


@message(api_key=16, versions="0-5", flexible_from=3)
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()
