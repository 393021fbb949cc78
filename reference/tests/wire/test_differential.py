"""Every message in every version is byte-identical to what other codecs write, in both directions.

One drawn message goes through all oracles that have its version:

- the construct description, derived from the same annotations by other code;
- an interpreter of Kafka's own definitions (the jar of 3.9.2, or kafka-python for what is newer);
- kio, generated from the definitions of 4.2;
- kafka-python 3, which reaches down to version 0.
"""

from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from highwater.reference.tests.wire import kafka_python_oracle, kio_oracle
from highwater.reference.tests.wire.cases import QUICK, VERSIONS, versioned
from highwater.reference.tests.wire.definitions import Definition, from_jar, from_kafka_python, span
from highwater.reference.tests.wire.interpreter import Interpreter
from highwater.reference.wire import constructs as described
from highwater.reference.wire.codec import decode, encode
from highwater.reference.wire.schema import StructOf, minimum_size, schema_of
from highwater.reference.wire.strategies import messages


def definition_of(cls: type[Any], version: int) -> Definition | None:
    """The jar's definition, or for what is newer kafka-python's."""
    for source in (from_jar(), from_kafka_python()):
        if cls.__name__ in source and version in span(source[cls.__name__]["validVersions"]):
            return source[cls.__name__]
    return None


@pytest.mark.sample(3)
@versioned(VERSIONS)
@given(data=st.data())
@QUICK
def test_all_oracles_agree(cls: type[Any], version: int, data: st.DataObject) -> None:
    drawn = data.draw(messages(cls, version))
    written = encode(drawn, version)
    note(f"{cls.__name__} version {version}: {written.hex()}")
    assert decode(cls, version, written) == drawn
    assert len(written) >= minimum_size(StructOf(cls), version, version in schema_of(cls).flexible)
    assert described.build(drawn, version) == written
    assert described.parse(cls, version, written) == drawn
    definition = definition_of(cls, version)
    if definition is not None:
        assert Interpreter(definition, version).encode(drawn) == written
    if kafka_python_oracle.their_struct(cls, version) is not None:
        assert kafka_python_oracle.write(drawn, version) == written
    if kio_oracle.kio_class(cls, version) is not None:
        check_against_kio(cls, version, kio_oracle.in_range(drawn, version))


def check_against_kio(cls: type[Any], version: int, message: Any) -> None:
    written = encode(message, version)
    theirs = kio_oracle.to_kio(message, version)
    assert kio_oracle.write(theirs) == written
    assert kio_oracle.read(cls, version, written) == theirs


@pytest.mark.skipif(not from_jar(), reason="the kafka-clients jar cannot be had here")
@versioned(VERSIONS)
def test_every_version_has_two_independent_oracles(cls: type[Any], version: int) -> None:
    """Keys 4 to 7 and first versions of 38 to 41 and 56 are in the jar only, the second of 68 and 69 in kio only."""
    have = [
        definition_of(cls, version) is not None,
        kafka_python_oracle.their_struct(cls, version) is not None,
        kio_oracle.kio_class(cls, version) is not None,
    ]
    key = schema_of(cls).api_key
    first_only = {**dict.fromkeys((38, 39, 40, 41), 1), 56: 2}
    one_only = key in (4, 5, 6, 7) or version < first_only.get(key, 0) or (key in (68, 69) and version == 1)
    assert sum(have) >= (1 if one_only else 2)
