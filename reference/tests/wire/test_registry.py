"""The registered APIs and the error codes."""

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from highwater.reference.wire.errors import RETRIABLE, ErrorCode, UnknownApiKeyError
from highwater.reference.wire.messages.fetch import FetchRequest, FetchResponse
from highwater.reference.wire.registry import APIS, api_of, api_of_key


def test_every_api_is_registered_under_its_key() -> None:
    assert list(APIS) == [
        *range(52),
        55,
        56,
        57,
        60,
        61,
        65,
        66,
        68,
        69,
        71,
        72,
        *range(74, 80),
        *range(88, 93),
    ]
    assert all(api.key == key for key, api in APIS.items())


def test_look_up_by_key_and_by_class() -> None:
    fetch = api_of_key(1)
    assert (fetch.name, fetch.request, fetch.response) == ("Fetch", FetchRequest, FetchResponse)
    assert (fetch.min_version, fetch.max_version, fetch.flexible_from) == (0, 18, 12)
    assert api_of(FetchRequest) is api_of(FetchResponse) is fetch
    with pytest.raises(UnknownApiKeyError):
        api_of_key(999)


@pytest.mark.parametrize(("key", "expected"), [(17, None), (47, None), (56, 0), (18, 3)])
def test_first_flexible_versions(key: int, expected: int | None) -> None:
    assert APIS[key].flexible_from == expected
    assert [APIS[key].is_flexible(version) for version in range(5)] == [
        expected is not None and version >= expected for version in range(5)
    ]


def test_error_codes_agree_with_kio() -> None:
    assert {code.name: int(code) for code in ErrorCode} == {code.name.upper(): int(code) for code in KioErrorCode}
    assert {code for code in ErrorCode if code.retriable} == {int(code) for code in KioErrorCode if code.retriable}
    assert len(ErrorCode) == 135
    assert len(RETRIABLE) == 32
