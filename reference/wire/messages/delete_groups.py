"""DeleteGroups (key 42): delete empty groups with their offsets (KIP-229)."""

from reference.wire.schema import Int16, Int32, String, message, struct


@message(api_key=42, versions="0-2", flexible_from=2)
class DeleteGroupsRequest:
    """Groups to delete."""

    groups_names: tuple[String, ...] = ()


@struct
class DeletableGroupResult:
    group_id: String = ""
    error_code: Int16 = 0


@message(api_key=42, versions="0-2", flexible_from=2)
class DeleteGroupsResponse:
    """One error code for each group."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()
