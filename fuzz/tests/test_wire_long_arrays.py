"""Requests with a long array: which arrays are sent, how they differ, and what they may leave behind."""

import random
from collections import Counter
from typing import Any

import pytest

from highwater.fuzz.wire.generate.cases import MANY, Case
from highwater.fuzz.wire.generate.long_arrays import ELEMENTS, FRAME_MAX, LASTING, LongArrays, arrays
from highwater.fuzz.wire.generate.requests import HARMFUL
from highwater.fuzz.wire.generate.stream import LONG_AGAIN_EVERY, LONG_EVERY, Stream
from highwater.fuzz.wire.oracles.malformed import must_be_refused
from highwater.fuzz.wire.oracles.responses import read_request
from highwater.reference.wire.registry import APIS, Api
from highwater.reference.wire.schema import message_layout

SEED = 3
SERVED = [(api, api.min_version, api.max_version) for key, api in APIS.items() if key not in HARMFUL]
CREATE_TOPICS, METADATA, DESCRIBE_GROUPS, DELETE_RECORDS = 19, 3, 15, 21
LONGER = 1.25
"""Elements are longer than the first two by the digits of their numbers."""


def served(*keys: int) -> list[tuple[Api, int, int]]:
    return [(APIS[key], APIS[key].min_version, APIS[key].max_version) for key in keys]


def all_of(ranges: list[tuple[Api, int, int]]) -> list[Case]:
    drawn = LongArrays(random.Random(SEED), ranges)
    return [case for _ in range(len(drawn)) if (case := drawn.draw()) is not None]


def array_of(case: Case) -> list[Any]:
    """Return the array that the case has made long."""
    _, value = read_request(case.frames[0][4:])
    for name in case.field.split("."):
        value = value[0] if isinstance(value, tuple) else value
        value = getattr(value, name)
    return list(value)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return all_of(SERVED)


def test_every_array_of_every_api_is_sent_in_both_forms(cases: list[Case]) -> None:
    """Except those in tag sections, and of requests that would create thousands of things."""
    expected = {
        (api.key, ".".join(path))
        for api, first, last in SERVED
        for version in range(first, last + 1)
        for path in arrays(message_layout(api.request, version))
        if api.key not in LASTING - {CREATE_TOPICS, METADATA}
    }
    sent = Counter((case.key, case.field) for case in cases)
    assert set(sent) == expected
    assert set(sent.values()) == {2}
    assert len(expected) > 100


def test_each_is_valid_and_long(cases: list[Case]) -> None:
    for case in cases:
        array = array_of(case)
        assert case.mutation == MANY
        assert must_be_refused(case.frames[0]) is None, case.field
        assert len(array) == ELEMENTS or len(case.frames[0]) > FRAME_MAX / 2, case.field
        assert len(case.frames[0]) <= LONGER * FRAME_MAX, case.field


def test_elements_differ_the_first_time_and_are_equal_the_second_time() -> None:
    for first, second in zip(*(iter(all_of(served(DESCRIBE_GROUPS))),) * 2, strict=True):
        assert len(set(array_of(first))) == len(array_of(first))
        assert len(set(array_of(second))) == 1
    partitions = [case for case in all_of(served(DELETE_RECORDS)) if case.field == "topics.partitions"]
    assert [p.partition_index for p in array_of(partitions[0])][:3] == [0, 1, 2]


def test_nothing_is_created() -> None:
    for case in all_of(served(CREATE_TOPICS)):
        assert read_request(case.frames[0][4:])[1].validate_only
    for case in all_of(served(METADATA)):
        assert not read_request(case.frames[0][4:])[1].allow_auto_topic_creation
    create_acls, credentials = 30, 51
    assert all_of(served(create_acls, credentials)) == []


def test_the_stream_draws_one_now_and_then_and_less_often_once_all_were_sent() -> None:
    stream = Stream("1", served(DESCRIBE_GROUPS), 0.25)  # it has one array
    drawn = [stream.next().mutation == MANY for _ in range(LONG_EVERY + LONG_AGAIN_EVERY)]
    assert [number for number, is_long in enumerate(drawn, 1) if is_long] == [LONG_EVERY, LONG_AGAIN_EVERY]


def test_a_target_without_arrays_gets_none() -> None:
    api_versions = 18
    assert LongArrays(random.Random(SEED), served(api_versions)).draw() is None
