"""Pictures show the changes of each step, and its actors."""

import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.spec.check import check
from highwater.spec.draw import draw_counterexample, draw_states, format_change, read_dot
from highwater.spec.models import load_models
from highwater.spec.tlc.counterexample import Change


def test_a_counterexample_is_a_column_an_actor_and_a_row_a_step() -> None:
    (found,) = check(models=[], guards=["AckAfterCommit"], jobs=1, controls=False)[:1]
    picture = xml.fromstring(draw_counterexample(found))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["b1", "store, messages"]
    assert [text for text in texts if text in {"ElectLeader", "BecomeLeader", "LeaderWrite", "LeaderAck"}] == [
        *("ElectLeader", "BecomeLeader", "LeaderWrite", "LeaderAck")
    ]
    assert "log[b1]: <<>> → <<0>>" in texts
    assert texts[-1] == "CommittedOnIsr is violated"


def test_what_holds_has_no_picture() -> None:
    (found,) = check(models=[], guards=["AckAfterCommit"], jobs=1, controls=False)[:1]
    import msgspec

    holds = msgspec.structs.replace(found, outcome=msgspec.structs.replace(found.outcome, trace=()))
    with pytest.raises(UsageError, match="no counterexample to draw"):
        draw_counterexample(holds)


def test_the_first_states_stay_within_the_limit() -> None:
    picture = draw_states(load_models()["MCControllerFailover"], limit=20)
    boxes = len(re.findall(r"<rect", picture))
    assert 5 < boxes <= 20
    assert "ReadEpoch" in picture
    xml.fromstring(picture)


DOT = r"""strict digraph DiskGraph {
1 [label="/\\ x = \"a\"\n/\\ y = 0",style = filled]
1 -> 2 [label="Up",color="black",fontcolor="black"];
2 [label="/\\ x = \"b\"\n/\\ y = 0"];
2 -> 1 [label="Down",color="black",fontcolor="black"];
}"""


def test_the_graph_that_tlc_writes_is_read() -> None:
    graph = read_dot(DOT)
    assert graph.states == {"1": '/\\ x = "a"\n/\\ y = 0', "2": '/\\ x = "b"\n/\\ y = 0'}
    assert graph.steps == [("1", "2", "Up"), ("2", "1", "Down")]
    assert graph.levels == {"1": 0, "2": 1}


def test_a_long_change_is_cut() -> None:
    assert format_change(Change("log", "<<>>", "x" * 200), 20) == "log: <<>> → xxxxxxx…"


def test_the_tables_of_the_readme_are_fresh() -> None:
    from highwater.spec.tables import README, update_tables

    text = Path(README).read_text()
    assert update_tables(text) == text, "run python -m highwater.spec.tables to update them"
