"""The tables of rows: what is sent, and what the broker returns for it (`rows/*.toml`).

A table is about one API. A row of `item_rows` puts a value into one field of one item of a request: a topic of
CreateTopics, a partition of ListOffsets. A row of `request_rows` is about a field of the whole request, or about an
item given twice. A row is `[name, changes, answer, options]`; what it leaves out its group has, or the table.
`README.md` describes the notation.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from highwater.conformance.client.requests import API_BY_NAME
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.schema import Versions

T = TypeVar("T")
ROWS: Final = Path(__file__).parent / "rows"
ERROR: Final = "$error"
"""In the answer of a group, the error that a row has."""
FENCING: Final = (ErrorCode.INVALID_PRODUCER_EPOCH.name, ErrorCode.PRODUCER_FENCED.name)
"""The error for a wrong producer epoch before and since the version of a request that has the second one (KIP-588)."""


class TableOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a row may have of its own, and else has from its group.

    `stored` names a check of what exists afterwards, and its arguments. `others` is the answer to the items beside it,
    if this value makes the broker reject the whole request. `producer` says which one `$producer` is. `read` is what
    is compared of the reply to a whole request. `since` is the first Kafka version that the row is for: an older
    release was seen to answer otherwise. `part` names a part of the table that is a case of its own.
    """

    versions: str | None = None
    since: str | None = None
    stored: str | list[Any] | None = None
    others: Any = None
    read: str | None = None
    producer: str | None = None
    part: str | None = None


class Group(TableOptions, kw_only=True):
    """Rows that have something in common: `changes`, the only changed `field`, the `answer` or parts of it.

    `include` names rows of `rows/common.toml` to be added, all or the slice `span`; `names` are the names that fields
    have in this API, `answers` the answers that theirs stand for. With `of_item` the changes are those of the last item
    of the request, which has `items`. `fenced` is the first version that returns PRODUCER_FENCED.
    """

    rows: list[list[Any]] = []
    include: str = ""
    span: tuple[int, int] = (0, 99)
    names: dict[str, str] = {}
    changes: dict[str, Any] = {}
    field: str = ""
    answer: Any = None
    answers: dict[str, Any] = {}
    of_item: bool = False
    items: list[Any] = msgspec.field(default_factory=lambda: [0])
    fenced: int = 0


class Table(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The rows about one API, and how it is called.

    `usual` are the fields of the request; those that a version lacks are left out. `item` are the fields of an item,
    `items` the list in which it is placed, and in brackets its key; `answers` is where its answer is, with the key and
    what is compared, which is `served` for an ordinary item. Of several lists the first counts that the version has.
    With `apart` each item has a struct of its own around it.
    `read` is what is compared of the reply to a whole request. `to` is the receiver, `needs` what exists before a case
    begins, `leaves` what is deleted after it, `unsupported` the errors of a broker where the case cannot be decided.
    """

    name: str = ""
    api: str = ""
    clause: str
    variant: str | None = None
    since: str = ""
    defects: dict[str, Any]
    to: str = "any broker"
    needs: list[str] = []
    leaves: list[str] = []
    timeout_s: float | None = None
    unsupported: list[str] = []
    usual: dict[str, Any] = {}
    item: dict[str, Any] = {}
    items: str | list[str] = []
    answers: str | list[str] = []
    apart: bool = False
    served: Any = 0
    read: str = "error_code"
    versions: str = "0+"
    producer: str = "new producer"
    item_rows: list[Group] = []
    request_rows: list[Group] = []

    @property
    def request(self) -> type[Any]:
        return API_BY_NAME[self.api or self.name].request

    def rows(self) -> "list[Row]":
        """Return all rows, those about items first."""
        about_items = [row for group in self.item_rows for row in _rows(self, group, is_item=True)]
        return about_items + [row for group in self.request_rows for row in _rows(self, group, is_item=False)]


@dataclass(frozen=True, slots=True)
class Row:
    """One value of one field. `answer` is what the broker returns, or a frozenset of what releases return."""

    name: str
    is_item: bool
    changes: Mapping[str, Any]
    answer: Any
    versions: Versions
    read: str
    producer: str
    since: str = ""
    stored: tuple[Any, ...] = ()
    others: Any = None
    part: str = ""


def read_tables() -> dict[str, Table]:
    """Return all tables by the name of their file and their own, such as `records.Fetch`."""
    found = dict[str, Table]()
    for path in sorted(ROWS.glob("*.toml")):
        if path != COMMON:
            for name, data in tomllib.loads(path.read_text()).items():
                found[f"{path.stem}.{name}"] = msgspec.convert({"name": name, **data}, Table)
    return found


COMMON: Final = ROWS / "common.toml"
COMMON_ROWS: Final[dict[str, list[list[Any]]]] = tomllib.loads(COMMON.read_text())


def _rows(table: Table, group: Group, *, is_item: bool) -> Iterator[Row]:
    for name, *rest in [*COMMON_ROWS.get(group.include, [])[slice(*group.span)], *group.rows]:
        padded: list[Any] = [*rest, *[None] * (3 - len(rest))]
        changes, answer, options = padded
        own = msgspec.convert(options or {}, TableOptions)
        chosen = {key: _first(getattr(own, key), getattr(group, key)) for key in TableOptions.__struct_fields__}
        stored = chosen["stored"] or []
        row = Row(
            name, is_item, _changes(group, changes), table.served,
            Versions.parse(chosen["versions"] or table.versions), chosen["read"] or table.read,
            chosen["producer"] or table.producer, chosen["since"] or "",
            (stored,) if isinstance(stored, str) else tuple(stored), answer_of(chosen["others"]), chosen["part"] or "",
        )  # fmt: skip
        yield from _answered(row, group, answer)


def _changes(group: Group, changes: Any) -> dict[str, Any]:
    """Return the changed fields of a row, those of its group included."""
    own = changes if changes is not None else {}
    own = {group.field: own} if group.field else {group.names.get(key, key): value for key, value in own.items()}
    if not group.of_item:
        return {**group.changes, **own}
    *before, last = group.items
    return {**group.changes, "items": [*before, {"number": last, **own}]}


def _answered(row: Row, group: Group, answer: Any) -> Iterator[Row]:
    """Yield the row with its answer: with `fenced`, one row for the versions before and one for those since then."""
    if not group.fenced:
        yield replace(row, answer=answer_of(_answer(row, group, answer)))
        return
    first, last = row.versions.first, row.versions.last
    for versions, error in zip((Versions(first, group.fenced - 1), Versions(group.fenced, last)), FENCING, strict=True):
        yield replace(row, answer=answer_of(_answer(row, group, error)), versions=versions)


def _answer(row: Row, group: Group, answer: Any) -> Any:
    if isinstance(answer, str) and answer in group.answers:
        return group.answers[answer]
    if group.include or group.fenced:
        return _with_error(_first(group.answer, ERROR), answer)
    return _first(answer, group.answer, row.answer)


def _with_error(template: Any, error: Any) -> Any:
    if isinstance(template, list):
        return [_with_error(each, error) for each in template]
    if isinstance(template, dict):
        return {key: _with_error(each, error) for key, each in template.items()}
    return error if template == ERROR else template


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def answer_of(value: Any) -> Any:
    """Return an answer as it is compared: names of errors as codes, lists as tuples, `any` of several as a set."""
    if isinstance(value, dict):
        return frozenset(map(answer_of, value["any"]))
    if isinstance(value, list):
        return tuple(map(answer_of, value))
    if isinstance(value, str) and value in ErrorCode.__members__:
        return ErrorCode[value]
    return value


TABLES: Final = read_tables()
