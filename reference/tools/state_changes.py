"""`highwater state-changes merge`: the state-change logs of many brokers as one story (StateChangeLogMerger)."""

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
    topic: Annotated[str | None, typer.Option(help="Only lines about this topic.")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only these partitions of it, repeatable.")] = None,
    start: Annotated[str | None, typer.Option(help="Not before, e.g. '2026-11-21 14:00:00,000' or a prefix.")] = None,
    end: Annotated[str | None, typer.Option(help="Not after.")] = None,
) -> None:
    """Print all lines in the order of their times; a line without one belongs to the one before it.

    Example: highwater state-changes merge data/broker-*/state-change.log --topic orders --partition 0
    """
    if partition and topic is None:
        raise UsageError("--partition needs --topic")
    about = _pattern(topic, partition or [])
    for stamp, text in heapq.merge(*(_entries(path) for path in _files(file)), key=itemgetter(0)):
        if (start is None or stamp >= start) and (end is None or stamp[: len(end)] <= end) and about.search(text):
            print(text)


def _files(paths: list[Path]) -> list[Path]:
    found = [each for path in paths for each in (sorted(path.rglob(LOG_NAME)) if path.is_dir() else [path])]
    if not found:
        raise UsageError(f"no {LOG_NAME} in there", where=", ".join(map(str, paths)))
    return found


def _pattern(topic: str | None, partitions: list[int]) -> re.Pattern[str]:
    """Of `orders-0` and, as Apache Kafka up to 0.11 wrote, `[orders,0]`."""
    if topic is None:
        return re.compile("")
    number = "|".join(map(str, partitions)) or r"\d+"
    name = re.escape(topic)
    if not partitions:
        return re.compile(rf"(?<![\w.-]){name}(?:-\d+|,\d+)?(?![\w.-]*\w)")
    return re.compile(rf"(?<![\w.-]){name}[-,](?:{number})(?!\d)")


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    """Time and text of each entry; what stands before the first time is dropped."""
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
