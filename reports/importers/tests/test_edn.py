"""EDN: the fast parser and the tokenizer agree, and invalid lines are quarantined with their number."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.reports.importers import edn, sources
from highwater.reports.importers.edn import MAP, SET, EdnError, forms, parse
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.tests.jepsen_runs import print_edn

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.from_regex(r":[a-z][a-z0-9-]{0,6}[?!]?", fullmatch=True),
)
STRINGS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6).filter(lambda s: s[:1] != ":")


def values(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4).filter(lambda each: each[:1] not in ([MAP], [SET])),
            st.lists(st.tuples(scalars, inner), max_size=3).map(
                lambda each: [MAP, *(i for pair in each for i in pair)]
            ),
            st.lists(scalars, max_size=3).map(lambda each: [SET, *each]),
        ),
        max_leaves=8,
    )


@given(values(st.one_of(SCALARS, STRINGS)))
def test_printed_values_are_parsed_back(value: Any) -> None:
    assert parse(print_edn(value)) == value


@given(st.lists(values(SCALARS), min_size=1, max_size=5))
def test_plain_lines_are_read_the_same_by_replacement_and_by_tokens(tmp_path_factory: Any, found: list[Any]) -> None:
    path = tmp_path_factory.mktemp("edn") / "history.edn"
    lines = [print_edn([MAP, ":value", value]) for value in found]
    path.write_text("\n".join(lines) + "\n")
    quarantine = Quarantine()
    assert list(forms(str(path), quarantine)) == [parse(line) for line in lines]
    assert quarantine.count == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12345678901234567890N", 12345678901234567890),
        ("1.5M", 1.5),
        ("1/2", "1/2"),
        (r'"a \"b\" \u00e9\n"', 'a "b" é\n'),
        (r"\newline", r"\newline"),
        ("#jepsen.history.Op{:a 1}", [MAP, ":a", 1]),
        ("{:a #{1 2}, :b (x nil)}", [MAP, ":a", [SET, 1, 2], ":b", ["x", None]]),
        ("[1 ; a comment\n 2]", [1, 2]),
    ],
)
def test_forms_that_need_the_tokenizer(text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize("text", ["", "{", "{:a 1", "]", "{:a 1]", '"open', "1 2", "12x"])
def test_invalid_forms_are_refused(text: str) -> None:
    with pytest.raises(EdnError):
        parse(text)


def read(tmp_path: Path, text: str) -> tuple[list[Any], Quarantine]:
    (tmp_path / "history.edn").write_text(text)
    quarantine = Quarantine()
    return list(forms(str(tmp_path / "history.edn"), quarantine)), quarantine


ONE, TWO = [MAP, ":a", 1], [MAP, ":a", [MAP]]


@pytest.mark.parametrize(
    "text",
    [
        "{:a 1}\n{:a {}}\n",
        "[{:a 1}\n {:a {}}]\n",
        "[{:a 1} {:a {}}]",
        "({:a 1},{:a {}})",
        "#jepsen.history.Op{:a 1}\n#jepsen.history.Op{:a {}}\n",
        "{:a\n 1}\n{:a\n {}\n}\n",
        "[\n{:a 1}\n{:a {}}\n]\n",
        "{:a 1}\r\n{:a {}}",
    ],
)
def test_maps_may_be_one_per_line_in_a_vector_or_over_many_lines(tmp_path: Path, text: str) -> None:
    found, quarantine = read(tmp_path, text)
    assert found == [ONE, TWO]
    assert quarantine.count == 0


def test_a_string_may_hold_brackets_and_line_ends(tmp_path: Path) -> None:
    found, quarantine = read(tmp_path, '{:a "}\n{"}\n{:a 1}\n')
    assert found == [[MAP, ":a", "}\n{"], ONE]
    assert quarantine.count == 0


def test_a_truncated_line_loses_only_itself(tmp_path: Path) -> None:
    found, quarantine = read(tmp_path, "{:a 1}\n{:a {\n{:a {}}\n{:a 1")
    assert found == [ONE, TWO]
    assert [(bad.line, bad.matters) for bad in quarantine.lines] == [(2, True), (4, True)]


def test_an_invalid_line_is_named_unless_it_is_of_the_nemesis(tmp_path: Path) -> None:
    found, quarantine = read(tmp_path, "{:a 1}\n{:a ]}\n{:process :nemesis, :a ]}\n{:a 1}\n")
    assert found == [ONE, ONE]
    assert [(bad.line, bad.matters) for bad in quarantine.lines] == [(2, True), (3, False)]


def test_memory_is_bounded_by_the_length_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 10)
    monkeypatch.setattr(sources, "LINE_LIMIT", 100)
    monkeypatch.setattr(edn, "LINE_LIMIT", 100)
    found, quarantine = read(tmp_path, "{:a 1}\n{:b [" + "1 " * 500 + "]}\n{:a 1}\n{:c [\n" + "1\n" * 500)
    assert found == [ONE, ONE]
    assert quarantine.lines[0].line == 2
    assert "longer than" in quarantine.lines[0].reason
    assert "longer than" in quarantine.lines[1].reason
