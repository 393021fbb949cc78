"""Delegation tokens: credentials of limited lifetime, which a client passes on to others (KIP-48, KIP-373)."""

from typing import Annotated

from highwater.reference.wire.schema import Bytes, Int16, Int32, Int64, String, message, since, struct

# --------------------------------------------------------------------------------------------------
# CreateDelegationToken (key 38): a token for the client itself, or since version 3 for another owner.


@struct
class CreatableRenewers:
    principal_type: String = ""
    principal_name: String = ""


@message(api_key=38, versions="0-3", flexible_from=2)
class CreateDelegationTokenRequest:
    """The owner, by default the client, who may renew the token, and its longest lifetime; -1 is the broker's."""

    owner_principal_type: Annotated[String | None, since(3)] = ""
    owner_principal_name: Annotated[String | None, since(3)] = ""
    renewers: tuple[CreatableRenewers, ...] = ()
    max_lifetime_ms: Int64 = 0


@message(api_key=38, versions="0-3", flexible_from=2)
class CreateDelegationTokenResponse:
    """The token: its id is the user name of SCRAM, its HMAC in Base64 the password."""

    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, since(3)] = ""
    token_requester_principal_name: Annotated[String, since(3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0


# --------------------------------------------------------------------------------------------------
# RenewDelegationToken (key 39): set a later time of expiry.


@message(api_key=39, versions="0-2", flexible_from=2)
class RenewDelegationTokenRequest:
    """The token, and for how long from now on; -1 is the broker's period."""

    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


@message(api_key=39, versions="0-2", flexible_from=2)
class RenewDelegationTokenResponse:
    """The new time of expiry."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


# --------------------------------------------------------------------------------------------------
# ExpireDelegationToken (key 40): set an earlier time of expiry, or delete the token.


@message(api_key=40, versions="0-2", flexible_from=2)
class ExpireDelegationTokenRequest:
    """The token, and the time from now until it expires; a negative one deletes it at once."""

    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


@message(api_key=40, versions="0-2", flexible_from=2)
class ExpireDelegationTokenResponse:
    """The new time of expiry."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


# --------------------------------------------------------------------------------------------------
# DescribeDelegationToken (key 41): the tokens that the client may see.


@struct
class DescribeDelegationTokenOwner:
    principal_type: String = ""
    principal_name: String = ""


@message(api_key=41, versions="0-3", flexible_from=2)
class DescribeDelegationTokenRequest:
    """The owners; null means all."""

    owners: tuple[DescribeDelegationTokenOwner, ...] | None = ()


@struct
class DescribedDelegationTokenRenewer:
    principal_type: String = ""
    principal_name: String = ""


@struct
class DescribedDelegationToken:
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, since(3)] = ""
    token_requester_principal_name: Annotated[String, since(3)] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = ()


@message(api_key=41, versions="0-3", flexible_from=2)
class DescribeDelegationTokenResponse:
    """The tokens with their HMACs."""

    error_code: Int16 = 0
    tokens: tuple[DescribedDelegationToken, ...] = ()
    throttle_time_ms: Int32 = 0
