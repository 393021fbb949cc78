"""The oracle for malformed requests: the strict decoder, and what Apache Kafka tolerates."""

import random
from collections import Counter

import pytest

from highwater.fuzz.wire.generate.cases import with_size
from highwater.fuzz.wire.generate.mutators import MUTATORS
from highwater.fuzz.wire.generate.pool import Pool
from highwater.fuzz.wire.oracles.malformed import (
    Flaw,
    Malformed,
    enumerations,
    first_flaw,
    is_tolerated,
    must_be_refused,
    tolerated,
)
from highwater.fuzz.wire.oracles.responses import Oracle, judge
from highwater.fuzz.wire.oracles.states import is_refusal, may_change
from highwater.fuzz.wire.oracles.tolerances import flawed_bodies
from highwater.reference.wire.errors import DecodeError, ErrorCode, TrailingBytesError
from highwater.reference.wire.framing import decode_request, encode_request, encode_response
from highwater.reference.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from highwater.reference.wire.messages.produce import ProduceRequest, ProduceResponse
from highwater.reference.wire.registry import APIS
from highwater.reference.wire.schema import ArrayOf, Fixed, StructOf, message_layout

SEED = 11
SAMPLES = 1


def test_the_strict_decoder_agrees_with_the_codec_except_for_values() -> None:
    """Both are derived from the message table, but share no code: a frame is malformed for both or for none."""
    pool, flaws = Pool(random.Random(SEED)), Counter[Flaw]()
    rng = random.Random(SEED)
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(SAMPLES):
                valid = pool.draw(api, version)
                cases = [MUTATORS[name](rng, valid) for name in MUTATORS]
                for body in (valid.body, *flawed_bodies(valid), *(case.frames[0][4:] for case in cases)):
                    flaws += Counter([flaw] if (flaw := flaw_beside_codec(body)) is not None else [])
    assert set(flaws) == set(Flaw) - {Flaw.ENUMERATION}, f"seed {SEED}: some flaws were never generated"


def flaw_beside_codec(body: bytes) -> Flaw | None:
    """Return the flaw of a body, after comparing with the codec."""
    if len(body) < 4 or first_flaw(body) == Malformed(Flaw.TRAILING, "body"):
        with pytest.raises(DecodeError):
            decode_request(body)
        return Flaw.TRAILING if len(body) >= 4 else None
    malformed = first_flaw(body)
    if malformed is not None and malformed.flaw is Flaw.ENUMERATION:
        return None
    key, version = int.from_bytes(body[:2], "big", signed=True), int.from_bytes(body[2:4], "big", signed=True)
    is_known = key in APIS and APIS[key].min_version <= version <= APIS[key].max_version
    error = codec_error(body)
    assert not isinstance(error, TrailingBytesError), f"seed {SEED}: {body.hex()}"
    assert (malformed is None) == (error is None or not is_known), f"seed {SEED}: {body.hex()}: {malformed}, {error}"
    return malformed.flaw if malformed is not None else None


def codec_error(body: bytes) -> DecodeError | None:
    try:
        decode_request(body)
    except DecodeError as error:
        return error
    return None


@pytest.mark.parametrize("acks", [-2, 2, 5])
def test_values_outside_of_an_enumeration_must_be_refused(acks: int) -> None:
    frame = encode_request(ProduceRequest(acks=acks), 9, 1, "c")
    assert must_be_refused(frame) == Malformed(Flaw.ENUMERATION, "acks")
    assert judge(frame, encode_response(ProduceResponse(), 9, 1)[4:])[0] is None, "there is no partition to refuse"


def test_an_accepted_value_outside_of_an_enumeration_is_a_failure() -> None:
    frame = encode_request(DescribeClusterRequest(endpoint_type=9), 1, 1, "c")
    failure, _ = judge(frame, encode_response(DescribeClusterResponse(), 1, 1)[4:])
    assert failure is not None
    assert failure.oracle is Oracle.REFUSE
    refused = encode_response(DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), 1, 1)[4:]
    assert judge(frame, refused)[0] is None


def test_a_negative_count_is_refused_unless_it_may_be_null() -> None:
    frame = encode_request(MetadataRequest(topics=()), 0, 1, "c")
    negative = frame[:-4] + (-5).to_bytes(4, "big", signed=True)
    assert must_be_refused(negative) == Malformed(Flaw.NEGATIVE_COUNT, "topics")
    failure, _ = judge(negative, encode_response(MetadataResponse(), 0, 1)[4:])
    assert failure is not None
    assert failure.oracle is Oracle.REFUSE
    nullable = encode_request(MetadataRequest(topics=()), 1, 1, "c")[:-4] + (-5).to_bytes(4, "big", signed=True)
    assert first_flaw(nullable[4:]) == Malformed(Flaw.NEGATIVE_NULL, "topics")
    assert must_be_refused(nullable) is None, "Apache Kafka reads every negative count as null"


def test_the_tables_name_flaws_apis_and_fields_that_exist() -> None:
    assert {row.flaw for row in tolerated()} <= {flaw.name for flaw in Flaw}
    names = {api.name for api in APIS.values()}
    assert {row.api for row in tolerated()} <= names | {"*"}
    assert {row.api for row in may_change()} <= names | {"*"}
    assert {row.error for row in may_change() if "*" not in row.error} <= {code.name for code in ErrorCode}
    reached = {(api, field) for api, field in enumerations() if _has_field(api, field)}
    assert reached == set(enumerations())


def _has_field(name: str, path: str) -> bool:
    """Return True if the newest version of the request has this field, and it is an integer."""
    api = next(api for api in APIS.values() if api.name == name)
    layout = message_layout(api.request, api.max_version)
    *outer, last = path.split(".")
    for part in outer:
        kind = next(field.type for field in layout.in_line if field.name == part)
        assert isinstance(kind, ArrayOf)
        assert isinstance(kind.element, StructOf)
        layout = layout.of(kind.element.struct)
    return any(field.name == last and isinstance(field.type, Fixed) for field in layout.in_line)


def test_a_tolerated_flaw_is_limited_to_its_fields() -> None:
    assert is_tolerated("Metadata", 9, Malformed(Flaw.TAG_ORDER, "topics._tags"))
    assert not is_tolerated("Metadata", 9, Malformed(Flaw.NULL, "topics.name"))
    assert is_tolerated("Fetch", 13, Malformed(Flaw.ENDS_EARLY, "replica_state._tags"))
    assert not is_tolerated("Fetch", 13, Malformed(Flaw.ENDS_EARLY, "topics.topic_id"))


def test_only_a_response_of_errors_is_a_refusal() -> None:
    valid = encode_request(ProduceRequest(acks=1), 9, 1, "c")
    malformed = with_size(valid[4:-1])
    assert is_refusal(valid, (int(ErrorCode.CORRUPT_MESSAGE),))
    assert not is_refusal(valid, (0, int(ErrorCode.CORRUPT_MESSAGE)))
    assert not is_refusal(valid, ())
    assert not is_refusal(valid, (int(ErrorCode.REQUEST_TIMED_OUT),))
    assert not is_refusal(valid, "closed"), "with acks=0 other partitions may have been written"
    assert is_refusal(malformed, "closed")
