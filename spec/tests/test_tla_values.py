"""Values are converted from TLC's text to Python and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.spec.tlc.values import Function, ModelValue, parse, to_tla

PRINTED = [
    ("17", 17),
    ("-1", -1),
    ("TRUE", True),
    ('"a \\"b\\""', 'a "b"'),
    ("b1", ModelValue("b1")),
    ("<< >>", ()),
    ("<<1, <<2>>>>", (1, (2,))),
    ("{}", frozenset()),
    ("{1..3, 7}", frozenset({frozenset({1, 2, 3}), 7})),
    ("[isr |-> {b1, b2},\n end |-> -1]", Function({"isr": frozenset({ModelValue("b1"), ModelValue("b2")}), "end": -1})),
    ("( b1 :> <<0>> @@\n  b2 :> <<>> )", Function({ModelValue("b1"): (0,), ModelValue("b2"): ()})),
]


@pytest.mark.parametrize(("text", "value"), PRINTED)
def test_reads_what_tlc_prints(text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize("text", ["", "<<1", "{1 2}", "[a |-> 1", "1 2", "(b1 :> 1", "?"])
def test_refuses_what_is_no_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"unexpected|not a TLC value"):
        parse(text)


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
ATOMS = st.integers(-9, 999) | st.booleans() | st.text('ab"\\ ', max_size=4) | NAMES.map(ModelValue)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(Function),
        st.dictionaries(NAMES.map(ModelValue), inner, min_size=1, max_size=3).map(Function),
    ),
    max_leaves=8,
)


@settings(derandomize=True, max_examples=200)
@given(VALUES)
def test_what_is_written_is_read_back(value: object) -> None:
    assert parse(to_tla(value)) == value


def test_refuses_to_write_what_tla_cannot_say() -> None:
    with pytest.raises(TypeError, match="float"):
        to_tla(1.5)
