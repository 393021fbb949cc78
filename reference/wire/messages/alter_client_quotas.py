"""AlterClientQuotas (key 49): set and remove quotas of users, client ids and addresses (KIP-546)."""

from reference.wire.schema import Bool, Float64, Int16, Int32, String, message, struct


@struct
class EntityData:
    """A null name is the default of its type."""

    entity_type: String = ""
    entity_name: String | None = ""


@struct
class OpData:
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


@struct
class AlterClientQuotasRequestEntryData:
    entity: tuple[EntityData, ...] = ()
    ops: tuple[OpData, ...] = ()


@message(api_key=49, versions="0-1", flexible_from=1)
class AlterClientQuotasRequest:
    """Entities with what changes for each."""

    entries: tuple[AlterClientQuotasRequestEntryData, ...] = ()
    validate_only: Bool = False


@struct
class AlterClientQuotasResponseEntryData:
    error_code: Int16 = 0
    error_message: String | None = ""
    entity: tuple[EntityData, ...] = ()


@message(api_key=49, versions="0-1", flexible_from=1)
class AlterClientQuotasResponse:
    """One error code for each entity."""

    throttle_time_ms: Int32 = 0
    entries: tuple[AlterClientQuotasResponseEntryData, ...] = ()
