"""The program that sends the rows of all tables and checks the answers.

The item of a row is sent alone, and then between two ordinary items. The answer to the item is the same both times, and
the ordinary items before and after it are served. The item is sent alone in the newest version that both sides support
and that the row applies to, and beside others in the oldest. A row about the whole request is sent in both of these
versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

from highwater.conformance.cases.fields.checks import CHECKS
from highwater.conformance.cases.fields.reading import read, walk
from highwater.conformance.cases.fields.receivers import error_codes, send
from highwater.conformance.cases.fields.tables import Row, Table, answer_of
from highwater.conformance.cases.fields.values import RowValues
from highwater.conformance.cases.fields.world import World
from highwater.conformance.cases.support.polling import spread
from highwater.conformance.client.requests import build, placed
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Disconnected, NoReply, TargetFailure, Unsupported
from highwater.reference.wire.registry import api_of
from highwater.reference.wire.schema import fields_of, message_layout

PLACES: Final = ("the item before it", "it beside others", "the item after it")
Item = dict[str, Any]


class Listing(NamedTuple):
    """A list of items in a message: its path, and what is read of each as its key and its value."""

    path: tuple[str, ...]
    key: str
    value: str


def listing_of(texts: str | list[str], struct: type[Any], version: int) -> Listing:
    """Return the first list that a version of a message has. Raises ValueError if there is none."""
    known = names_of(struct, version)
    for text in [texts] if isinstance(texts, str) else texts:
        path, _, rest = text.partition("(")
        names = tuple(path.split("."))
        if names[0] in known:
            key, _, value = rest.removesuffix(")").partition("->")
            return Listing(names, key.strip(), value.strip())
    raise ValueError(f"{struct.__name__} v{version} has none of these lists: {texts}")


def names_of(struct: type[Any], version: int) -> set[str]:
    """Return the names of the fields that a message has in a version."""
    layout = message_layout(struct, version)
    return {field.name for field in (*layout.in_line, *layout.tagged)}


@dataclass
class RowTrial:
    """The rows of a case in a world."""

    table: Table
    rows: Sequence[Row]
    world: World

    @classmethod
    def prepared(cls, table: Table, rows: Sequence[Row], world: World) -> Self:
        """Return a trial after what its table needs is created."""
        for name in table.needs:
            getattr(world, name)
        return cls(table, rows, world)

    # -- rows ----------------------------------------------------------------------------------------

    def check_all(self) -> None:
        """Try all rows, also after one has failed; raises a failure that names all failed rows.

        A row whose versions the broker lacks is left out, unless it lacks those of all rows; the case notes how many.
        """
        failures, lacking = list[TargetFailure](), list[Unsupported]()
        for row in self.rows:
            try:
                self.check(row)
            except (Disconnected, NoReply):
                raise
            except TargetFailure as failure:
                failures.append(failure)
            except Unsupported as error:
                lacking.append(error)
        if len(lacking) == len(self.rows):
            raise lacking[0]
        self.world.cluster.notes.append(f"{len(self.rows) - len(lacking)} of {len(self.rows)} rows apply")
        if len(failures) > 1:
            raise TargetFailure(f"{len(failures)} of {len(self.rows)} rows: {'; '.join(map(str, failures))}")
        if failures:
            raise failures[0]

    def check(self, row: Row) -> None:
        """Send a row in the newest and the oldest of its versions and check the answers."""
        versions = self._versions(row.versions.first, row.versions.last)
        row = replace(row, answer=RowValues(self.world).resolve(row.answer))
        if row.is_item:
            self._check_alone(row, versions[-1])
            self._check_between(row, versions[0])
        else:
            for version in sorted({versions[0], versions[-1]}):
                self._check_request(row, version)

    def check_twice(self, error: int) -> None:
        """Send an item twice with another item between, in the oldest and the newest version: only that is served."""
        versions = self._versions()
        for version in sorted({versions[0], versions[-1]}):
            item, other = self._ordinary_item(), self._ordinary_item()
            keys, answers = self._send_items([item, other, item], version)
            what = self._what(version)
            expect(f"{what}: answer to the item that is given twice", error, answers.get(keys[0]))
            expect(f"{what}: answer to the item between", self._served, answers.get(keys[1]))

    def _check_alone(self, row: Row, version: int) -> None:
        what, item = f"{self._what(version)}, {row.name}", self._item(row)
        (key,), answers = self._send_items([item], version)
        expect(f"{what}: number of answers", 1, len(answers))
        expect(f"{what}: answer", row.answer, answers.get(key))
        self._check_stored(row, item)

    def _check_between(self, row: Row, version: int) -> None:
        what = f"{self._what(version)}, {row.name}"
        items = [self._ordinary_item(), self._item(row), self._ordinary_item()]
        keys, answers = self._send_items(items, version)
        expect(f"{what}: number of answers beside others", 3, len(answers))
        others = self._served if row.others is None else row.others
        for place, key, answer in zip(PLACES, keys, (others, row.answer, others), strict=True):
            expect(f"{what}: answer to {place}", answer, answers.get(key))

    def _check_request(self, row: Row, version: int) -> None:
        values = RowValues(self.world, row.producer)
        request = self.request(row, values, version)
        reply = self.send(request, version)
        expect(f"{self._what(version)}, {row.name}: answer", row.answer, read(row.read, reply, self.world))
        self._check_stored(row, request)

    def _check_stored(self, row: Row, sent: Any) -> None:
        if row.stored:
            name, *arguments = row.stored
            CHECKS[name](self.world, sent, *arguments)

    # -- items ---------------------------------------------------------------------------------------

    def _item(self, row: Row) -> Item:
        return RowValues(self.world, row.producer).fields(self.table.item, row.changes)

    def _ordinary_item(self) -> Item:
        return RowValues(self.world, self.table.producer).fields(self.table.item, {}, self.world.next_number())

    @property
    def _served(self) -> Any:
        return answer_of(self.table.served)

    def _send_items(self, items: list[Item], version: int) -> tuple[list[Any], dict[Any, Any]]:
        """Send items in one request; return their keys, and the answers by key."""
        values = RowValues(self.world, self.table.producer)
        request = self._place(values.fields(self._usual(version), {}), items, version, apart=self.table.apart)
        reply = self.send(request, version)
        expect(f"error code of {api_of(self.table.request).name}", 0, getattr(reply, "error_code", 0))
        sent = listing_of(self.table.items, type(request), version)
        answered = listing_of(self.table.answers, type(reply), version)
        answers = zip(
            self._read_each(reply, answered, answered.key),
            self._read_each(reply, answered, answered.value),
            strict=True,
        )
        return self._read_each(request, sent, sent.key), dict(answers)

    def _read_each(self, message: Any, listing: Listing, text: str) -> list[Any]:
        """Return what a text names of each item; without a text, the position of each."""
        if not text:
            return list(range(len(list(walk(message, listing.path)))))
        return list(read(f"{'.'.join(listing.path)}[{text}]", message, self.world))

    # -- requests ------------------------------------------------------------------------------------

    def request(self, row: Row, values: RowValues, version: int) -> Any:
        """Return the request of a row about the whole request."""
        changes = dict(row.changes)
        items, apart = changes.pop("items", [0]), changes.pop("apart", self.table.apart)
        fields = values.fields(self._usual(version), changes)
        if not self.table.items or listing_of(self.table.items, self.table.request, version).path[0] in changes:
            return build(self.table.request, fields)
        return self._place(fields, [self._numbered(each, values) for each in items], version, apart=apart)

    def _numbered(self, item: int | dict[str, Any], values: RowValues) -> Item:
        """Return an item of a row: its number, or changed fields, of which `number` is one."""
        changes = {"number": item} if isinstance(item, int) else dict(item)
        return values.fields(self.table.item, changes, changes.pop("number", 0))

    def _place(self, fields: dict[str, Any], items: list[Item], version: int, *, apart: bool) -> Any:
        path = listing_of(self.table.items, self.table.request, version).path
        return build(self.table.request, placed(self.table.request, fields, path, items, apart=apart))

    def _usual(self, version: int) -> dict[str, Any]:
        """Return the usual fields that the version has, or ignores."""
        known = names_of(self.table.request, version)
        known |= {field.name for field in fields_of(self.table.request) if field.ignorable}
        return {name: value for name, value in self.table.usual.items() if name in known}

    def send(self, request: Any, version: int) -> Any:
        """Send a request and return the reply; raises Unsupported for an error that leaves the case undecided."""
        reply = send(self.world, self.table.to, request, version, self.table.timeout_s)
        if self.table.unsupported and set(error_codes(reply)) & set(answer_of(self.table.unsupported)):
            raise Unsupported(f"this connection may not send {api_of(self.table.request).name}")
        return reply

    def _versions(self, first: int = 0, last: int | None = None) -> list[int]:
        return spread(self.world.broker, self.table.request, first, last)

    def _what(self, version: int) -> str:
        return f"{api_of(self.table.request).name} v{version}"
