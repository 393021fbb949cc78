"""`highwater state-changes merge`: merge the state-change logs of many brokers by time (StateChangeLogMerger)."""

import heapq
import re
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Final

import typer

from highwater.errors import UsageError

app = typer.Typer(no_args_is_help=True)

STAMP: Final = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]")
LOG_NAME: Final = "state-change.log"


@app.command("merge")
def merge_command(
    file: Annotated[list[Path], typer.Argument(help=f"{LOG_NAME} files, ours or Apache Kafka's; or folders of them.")],
    topic: Annotated[str | None, typer.Option(help="Print only lines about this topic.")] = None,
    partition: Annotated[
        list[int] | None, typer.Option(help="Print only these partitions of the topic, repeatable.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="The first time, e.g. '2026-11-21 14:00:00,000' or a prefix.")
    ] = None,
    end: Annotated[str | None, typer.Option(help="The last time, in the same format.")] = None,
) -> None:
    """Print all lines in time order; a line without a time belongs to the line before it.

    Example: highwater state-changes merge data/broker-*/state-change.log --topic orders --partition 0
    """
    if partition and topic is None:
        raise UsageError("--partition needs --topic")
    pattern = _pattern(topic, partition or [])
    for stamp, text in heapq.merge(*(_entries(path) for path in _files(file)), key=itemgetter(0)):
        if (start is None or stamp >= start) and (end is None or stamp[: len(end)] <= end) and pattern.search(text):
            print(text)


def _files(paths: list[Path]) -> list[Path]:
    found = [file for path in paths for file in (sorted(path.rglob(LOG_NAME)) if path.is_dir() else [path])]
    if not found:
        raise UsageError(
            f"there is no {LOG_NAME} here", where=", ".join(map(str, paths)), hint="give a broker's log_dir"
        )
    return found


def _pattern(topic: str | None, partitions: list[int]) -> re.Pattern[str]:
    """Return the pattern of a partition: `orders-0`, or `[orders,0]` as Apache Kafka wrote until 0.11."""
    if topic is None:
        return re.compile("")
    number = "|".join(map(str, partitions)) or r"\d+"
    name = re.escape(topic)
    if not partitions:
        return re.compile(rf"(?<![\w.-]){name}(?:-\d+|,\d+)?(?![\w.-]*\w)")
    return re.compile(rf"(?<![\w.-]){name}[-,](?:{number})(?!\d)")


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (time, text) of every entry; lines before the first time are dropped."""
    stamp, text = "", ""
    with path.open(errors="replace") as lines:
        for line in lines:
            found = STAMP.match(line)
            if found is None:
                text += "\n" + line.rstrip("\n") if stamp else ""
                continue
            if stamp:
                yield stamp, text
            stamp, text = found[1], line.rstrip("\n")
    if stamp:
        yield stamp, text
