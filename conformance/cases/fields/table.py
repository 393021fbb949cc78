"""Rows of special values of request fields, and the check that sends each of them.

A row puts one value into one field of one item of a request: a topic of CreateTopics, a partition of ListOffsets. The
check sends the item alone, and then between two ordinary items. The answer to the item is the same both times, and the
ordinary items before and after it are served. The item is sent alone in the newest version that both sides support and
that the row applies to, and beside others in the oldest.

A call is a row about a field of the whole request, or about an item given twice: it is sent in both of these versions.
All rows and calls of one API can share a case, and with it the topics or groups that they need.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pytest

from highwater.conformance.broker import Broker, expect
from highwater.conformance.cases.support.group_models.comparison import spread
from highwater.conformance.clause import era
from highwater.conformance.failures import Disconnected, NoReply, TargetFailure, Unsupported
from highwater.reference.wire.registry import api_of

PLACES: Final = ("the item before it", "it beside others", "the item after it")
Answers = dict[Any, Any]
"""The comparable part of a reply, mostly an error code, by the key of the item."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value of one field.

    `item` builds the item with this value. `answer` is what the broker returns for it, or a frozenset of what releases
    return. `stored` checks what exists afterwards, given the item. `others` is the answer to the items beside it, if
    this value makes the broker reject the whole request. `versions` limits the API versions; `since` is the
    first Kafka version that the row is for.
    """

    name: str
    item: Callable[[Any], Any]
    answer: Any = 0
    stored: Callable[[Any, Any], None] | None = None
    others: Any = None
    versions: tuple[int, int | None] = (0, None)
    since: str = ""


@dataclass(frozen=True, slots=True)
class Api:
    """How the items of one API are sent.

    `ordinary` builds an item that is served with the answer `served`; `send` sends items in a version and returns
    the answers by key. `call` sends a whole request in a version and returns what `Call.read` reads; without it, the
    request is sent to the broker of the case.
    """

    request: type[Any]
    ordinary: Callable[[Any], Any]
    send: Callable[[Any, Sequence[Any], int], Answers]
    key: Callable[[Any], Any]
    served: Any = 0
    call: Callable[[Any, Any, int], Any] | None = None


def no_items(request: type[Any], call: Callable[[Any, Any, int], Any] | None = None) -> Api:
    """Return an API of which only whole requests are tried."""
    return Api(request, lambda world: None, lambda world, items, version: {}, lambda each: each, call=call)


def changed(usual: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usual fields with changes: a function changes the usual value."""
    return {**usual, **{name: value(usual[name]) if callable(value) else value for name, value in fields.items()}}


def whole(reply: Any) -> Any:
    """Return the reply as it is."""
    return reply


@dataclass(frozen=True, slots=True)
class Call:
    """One value of a field of a whole request.

    `request` builds the request, `answer` is what `read` returns for the reply, or a frozenset of what releases return.
    `stored` checks what exists afterwards, given the request. `versions` and `since` are as in `Row`.
    """

    name: str
    request: Callable[[Any], Any]
    answer: Any
    read: Callable[[Any], Any] = whole
    versions: tuple[int, int | None] = (0, None)
    since: str = ""
    stored: Callable[[Any, Any], None] | None = None


R = TypeVar("R", Row, Call)


def later(since: str, *rows: R) -> list[R]:
    """Return the rows limited to this Kafka version and newer ones: an older release was seen to answer otherwise."""
    return [replace(row, since=since) for row in rows]


def calls(
    request: Callable[..., Callable[[Any], Any]], read: Callable[[Any], Any],
    rows: Sequence[tuple[str, Mapping[str, Any], Any]], versions: tuple[int, int | None] = (0, None),
    stored: Callable[[Any, Any], None] | None = None,
) -> list[Call]:  # fmt: skip
    """Return the rows with these names, changed fields and answers; `request` takes the changed fields."""
    return [Call(name, request(**fields), answer, read, versions, stored=stored) for name, fields, answer in rows]


def parameters(rows: Sequence[Row]) -> list[Any]:
    """Return the rows as parameters of a case, each with its first Kafka version."""
    return [pytest.param(row, id=row.name, marks=[era(row.since)] if row.since else []) for row in rows]


def check(api: Api, row: Row, world: Any, broker: Broker) -> None:
    """Send the item of a row alone, in the newest version, and between others, in the oldest, and check the answers."""
    name = api_of(api.request).name
    versions = spread(broker, api.request, *row.versions)
    what, item = f"{name} v{versions[-1]}, {row.name}", row.item(world)
    alone = api.send(world, [item], versions[-1])
    expect(f"{what}: number of answers", 1, len(alone))
    expect(f"{what}: answer", row.answer, alone.get(api.key(item)))
    if row.stored:
        row.stored(world, item)
    what, items = f"{name} v{versions[0]}, {row.name}", [api.ordinary(world), row.item(world), api.ordinary(world)]
    together = api.send(world, items, versions[0])
    expect(f"{what}: number of answers beside others", 3, len(together))
    others = api.served if row.others is None else row.others
    for place, each, answer in zip(PLACES, items, (others, row.answer, others), strict=True):
        expect(f"{what}: answer to {place}", answer, together.get(api.key(each)))


def check_twice(api: Api, world: Any, broker: Broker, answer: Any) -> None:
    """Send an item twice with another item between, in the oldest and the newest version: only the other is served."""
    versions = spread(broker, api.request)
    for version in sorted({versions[0], versions[-1]}):
        item, other = api.ordinary(world), api.ordinary(world)
        what, answers = f"{api_of(api.request).name} v{version}", api.send(world, [item, other, item], version)
        expect(f"{what}: answer to the item that is given twice", answer, answers.get(api.key(item)))
        expect(f"{what}: answer to the item between", api.served, answers.get(api.key(other)))


def shared(*rows: Row | Call) -> list[Any]:
    """Return the rows as parameters of a case that tries all of them, one for each first Kafka version."""
    return [
        pytest.param(
            [row for row in rows if row.since == since],
            id=f"since {since}" if since else "",
            marks=[era(since)] if since else [],
        )
        for since in dict.fromkeys(row.since for row in rows)
    ]


def check_all(api: Api, rows: Sequence[Row | Call], world: Any, broker: Broker) -> None:
    """Try all rows, also after one has failed; raises a failure that names all failed rows.

    A row whose versions the broker lacks is left out, unless it lacks those of all rows; the case notes how many were.
    """
    failures, lacking = list[TargetFailure](), list[Unsupported]()
    for row in rows:
        try:
            _check_any(api, row, world, broker)
        except (Disconnected, NoReply):
            raise
        except TargetFailure as failure:
            failures.append(failure)
        except Unsupported as error:
            lacking.append(error)
    if len(lacking) == len(rows):
        raise lacking[0]
    world.cluster.notes.append(f"{len(rows) - len(lacking)} of {len(rows)} rows apply")
    if len(failures) > 1:
        raise TargetFailure(f"{len(failures)} of {len(rows)} rows: {'; '.join(map(str, failures))}")
    if failures:
        raise failures[0]


def _check_any(api: Api, row: Row | Call, world: Any, broker: Broker) -> None:
    if isinstance(row, Row):
        return check(api, row, world, broker)
    versions = spread(broker, api.request, *row.versions)
    for version in sorted({versions[0], versions[-1]}):
        request = row.request(world)
        reply = api.call(world, request, version) if api.call else broker.call(request, version)
        expect(f"{api_of(api.request).name} v{version}, {row.name}: answer", row.answer, row.read(reply))
        if row.stored:
            row.stored(world, request)
    return None
