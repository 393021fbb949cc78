"""Requests with items of several kinds: each item is answered as if it were alone.

The kinds of items of an API are the item rows of its table. A request has some of them, in an order by chance, between
two ordinary items: the broker serves some itself, forwards, refuses or delays others, and answers each by its key.
"""

import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from highwater.conformance.cases.fields.tables import TABLES, Row, Table
from highwater.conformance.cases.fields.trial import Item, RowTrial, listing_of
from highwater.conformance.cases.fields.values import RowValues
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.running.selection import applies

MOST: Final = 6
"""So many kinds of items a request has at most, beside two ordinary items."""


class Part(NamedTuple):
    """An item of a request with its answer; an ordinary item has no row."""

    item: Item
    answer: Any
    row: Row | None = None


def kinds_of(table: Table) -> list[Row]:
    """Return the rows whose items may be among any others: those that do not make the broker reject the request."""
    return [row for row in table.rows() if row.is_item and row.others is None]


MIXED: Final = {name: table for name, table in TABLES.items() if kinds_of(table)}


class MixedTrial(RowTrial):
    """The kinds of items of a table in a world."""

    def check_mixture(self, chance: random.Random) -> None:
        """Send items of several kinds in a version by chance, and check the answer to each."""
        version = chance.choice(self._versions(*self._span()))
        known = self.world.cluster.target.era
        fitting = [row for row in self.rows if version in row.versions and applies(known, row.since)]
        parts = self._distinct(chance.sample(fitting, min(len(fitting), chance.randint(2, MOST))), version)
        keys, answers = self._send_items([part.item for part in parts], version)
        names = [part.row.name if part.row else "ordinary" for part in parts]
        what = f"{self._what(version)} with {', '.join(names)}"
        expect(f"{what}: number of answers", len(parts), len(answers))
        for name, key, part in zip(names, keys, parts, strict=True):
            expect(f"{what}: answer to {name}", part.answer, answers.get(key))
        for part in parts:
            if part.row:
                self._check_stored(part.row, part.item)

    def _span(self) -> tuple[int, int]:
        """Return the first and last version of which the table has rows."""
        return min(row.versions.first for row in self.rows), max(row.versions.last for row in self.rows)

    def _distinct(self, rows: list[Row], version: int) -> list[Part]:
        """Return the items of rows that the target supports and that have a key of their own, between ordinary ones."""
        first, last = (Part(self._ordinary_item(), self._served) for _ in range(2))
        found = {self._key(part.item, version): part for part in (first, last)}
        for part in self._supported(rows):
            found.setdefault(self._key(part.item, version), part)
        return [first, *(part for part in found.values() if part.row), last]

    def _supported(self, rows: list[Row]) -> Iterator[Part]:
        for row in rows:
            try:
                yield Part(self._item(row), RowValues(self.world).resolve(row.answer), row)
            except Unsupported:  # of a single broker no other one leads a partition
                continue

    def _key(self, item: Item, version: int) -> str:
        """Return what a broker distinguishes an item by: of one key a request has one item."""
        listing = listing_of(self.table.items, self.table.request, version)
        request = self._place({}, [item], version, apart=True)
        return repr(self._read_each(request, listing, listing.key) if listing.key else item)
