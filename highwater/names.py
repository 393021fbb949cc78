"""Names that users type (guards, clauses, models, rules, settings): errors for unknown ones, and lists of all."""

import json
import textwrap
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from highwater.errors import UsageError

SHOWN: Final = 3
LINE_WIDTH: Final = 120


def unknown_name(kind: str, name: str, known: Iterable[str], list_command: str, *, where: str = "") -> UsageError:
    """Return the error for an unknown name: it shows up to three near names, and the command that lists all of them."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    near = get_close_matches(name.casefold(), by_folded, SHOWN)
    guess = f"did you mean {' or '.join(by_folded[found] for found in near)}? " if near else ""
    return UsageError(f"no {kind} {name!r}", where=where, hint=f"{guess}`{list_command}` lists all")


def number_of(count: int, noun: str) -> str:
    """Return `1 line`, `2 lines`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def print_names(rows: Iterable[tuple[str, ...]], columns: tuple[str, ...], *, as_json: bool = False) -> None:
    """Print one line for each row, the name first; as JSON an array of objects with the keys `columns`."""
    listed = list(rows)
    if as_json:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in listed], ensure_ascii=False))
        return
    widths = [max((len(row[at]) for row in listed), default=0) for at in range(len(columns))]
    for row in listed:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def hanging(label: str, text: str) -> str:
    """Return the label and the text, which is wrapped at 120 columns and continues below its beginning."""
    return textwrap.fill(
        text, LINE_WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
