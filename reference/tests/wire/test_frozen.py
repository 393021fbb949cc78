"""Classes of `frozen` behave like frozen dataclasses after construction."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import get_type_hints

import pytest

from highwater.reference.effects import Request, SetTimer
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest
from highwater.reference.wire.records import BatchHeader


@dataclass(frozen=True, slots=True)
class Usual:
    name: str
    due_ms: int


@pytest.mark.parametrize(
    "made",
    [SetTimer("tick", 7), Request(1, 12, None), FetchPartition(partition=3), BatchHeader(*range(13))],
    ids=lambda made: type(made).__name__,
)
def test_instances_are_immutable(made: object) -> None:
    name = fields(made)[0].name  # type: ignore[arg-type]
    before = getattr(made, name)
    with pytest.raises(FrozenInstanceError):
        setattr(made, name, 1)
    with pytest.raises(FrozenInstanceError):
        delattr(made, name)
    with pytest.raises(AttributeError):
        object.__setattr__(made, "another", 1)
    assert getattr(made, name) == before
    assert all(
        same == made and type(same) is type(made) for same in (pickle.loads(pickle.dumps(made)), copy.copy(made))
    )


def test_construction_equality_and_repr_match_a_frozen_dataclass() -> None:
    timer, usual = SetTimer("tick", due_ms=7), Usual("tick", due_ms=7)
    assert timer == SetTimer(due_ms=7, name="tick") != replace(timer, due_ms=8)
    assert (hash(timer), repr(timer)) == (hash(usual), repr(usual).replace("Usual", "SetTimer"))
    assert get_type_hints(SetTimer.__init__) == get_type_hints(Usual.__init__)
    assert str(inspect.signature(SetTimer)) == str(inspect.signature(Usual))


def test_field_defaults_are_used() -> None:
    assert Request(1, 12, None) == Request(1, 12, None, client_id=None, client_host="127.0.0.1")
    made = FetchRequest(replica_id=2)
    assert all(getattr(made, field.name) == field.default for field in fields(made) if field.name != "replica_id")


def test_missing_and_unknown_arguments_raise() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'due_ms'"):
        SetTimer("tick")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        FetchPartition(partition=1, other=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional argument"):
        FetchPartition(1)  # type: ignore[call-arg]
