"""Responses with errors exist for every API and version, and are about what the request asked for."""

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.fuzz.proxy.answers import error_response
from highwater.fuzz.proxy.items import items
from highwater.reference.wire.codec import decode, encode
from highwater.reference.wire.registry import APIS, Api
from highwater.reference.wire.strategies import messages

CODE = 41


def codes(message: Any) -> list[int]:
    """Return every error code in a message."""
    found = []
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        for entry in value if isinstance(value, tuple) else ():
            found += codes(entry) if is_dataclass(entry) else []
    return found


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@settings(max_examples=30)
@given(data=st.data())
def test_every_request_can_be_answered_with_an_error(api: Api, data: st.DataObject) -> None:
    version = data.draw(st.integers(api.min_version, api.max_version), label="version")
    request = data.draw(messages(api.request, version), label="request")
    response = error_response(api, version, request, CODE)
    assert decode(api.response, version, encode(response, version)) == response
    assert CODE in codes(response) or not list(items(request, {}))
    assert set(items(response, {})) <= set(items(request, {}))
