"""ApiVersions (key 18): which keys and versions a broker serves (KIP-35).

3 carries the client's name and the features (KIP-511, KIP-584). Its reply always has header version 0, because it must
be readable before the versions are known; an unsupported request is answered in version 0 with UNSUPPORTED_VERSION.
"""

from typing import Annotated

from reference.wire.schema import Bool, Int16, Int32, Int64, String, ignorable, message, since, struct, tagged


@message(api_key=18, versions="0-4", flexible_from=3)
class ApiVersionsRequest:
    """Says who the client is, for logs and metrics."""

    client_software_name: Annotated[String, since(3), ignorable] = ""
    client_software_version: Annotated[String, since(3), ignorable] = ""


@struct
class ApiVersion:
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class SupportedFeatureKey:
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class FinalizedFeatureKey:
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


@message(api_key=18, versions="0-4", flexible_from=3)
class ApiVersionsResponse:
    """The keys with their versions, and the features of the cluster."""

    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], tagged(0, since=3), ignorable] = ()
    finalized_features_epoch: Annotated[Int64, tagged(1, since=3), ignorable] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], tagged(2, since=3), ignorable] = ()
    zk_migration_ready: Annotated[Bool, tagged(3, since=3), ignorable] = False
