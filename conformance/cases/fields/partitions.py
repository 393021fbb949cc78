"""Items that are partitions of a topic, and rows about partitions and topics that do not exist.

The world of such a table has a `topic` of three partitions: the first is for the row, the others for ordinary items.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from highwater.conformance.cases.fields.table import Row

INT16_MIN, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX = -(2**15), -(2**31), 2**31 - 1, -(2**63), 2**63 - 1
PARTITIONS: Final = 3
Item = tuple[str, Any]
"""The name of a topic, and the struct of one of its partitions."""


def item(part: Any, *, name: str | None = None, change: Callable[[str], str] = str) -> Callable[[Any], Item]:
    """Return a builder of an item in the topic of the case, or in one that does not exist."""
    return lambda world: (change(world.topic.name) if name is None else name, part)


def by_topic(items: Sequence[Item], kind: type[Any], named: str, listed: str = "partitions") -> tuple[Any, ...]:
    """Return the structs of topics for these items: items of a topic that follow one another share a struct."""
    return tuple(
        kind(**{named: name, listed: tuple(part for _, part in group)})
        for name, group in itertools.groupby(items, key=lambda each: each[0])
    )


def somewhere(part: Callable[..., Any], error: Any, illegal: Any = None) -> list[Row]:
    """Return the rows about topics and partitions that do not exist; `part` takes the number of the partition.

    `illegal` is the answer for names that no topic can have, by default also `error`.
    """
    illegal = error if illegal is None else illegal
    return [
        Row("partition negative", item(part(-1)), error),
        Row("partition smallest", item(part(INT32_MIN)), error),
        Row("partition one too large", item(part(PARTITIONS)), error),
        Row("partition largest", item(part(INT32_MAX)), error),
        Row("topic empty", item(part(0), name=""), illegal),
        Row("topic invalid", item(part(0), name="a b"), illegal),
        Row("topic in upper case", item(part(0), change=str.upper), error),
        Row("topic with a blank", item(part(0), change=lambda name: name + " "), illegal),
    ]
