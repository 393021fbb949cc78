"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses (KIP-546)."""

from reference.wire.schema import Bool, Float64, Int8, Int16, Int32, String, message, struct


@struct
class ComponentData:
    """`match_type` 0 is this very name, 1 the default, 2 any name."""

    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


@message(api_key=48, versions="0-1", flexible_from=1)
class DescribeClientQuotasRequest:
    """Which entities; strict leaves out those that have other components as well."""

    components: tuple[ComponentData, ...] = ()
    strict: Bool = False


@struct
class EntityData:
    entity_type: String = ""
    entity_name: String | None = ""


@struct
class ValueData:
    key: String = ""
    value: Float64 = 0.0


@struct
class EntryData:
    entity: tuple[EntityData, ...] = ()
    values: tuple[ValueData, ...] = ()


@message(api_key=48, versions="0-1", flexible_from=1)
class DescribeClientQuotasResponse:
    """The quotas of each entity."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: tuple[EntryData, ...] | None = ()
