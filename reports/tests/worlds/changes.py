"""Change a history at one place: a field, a record, the outcome or the place of an operation."""

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from highwater.reports.tests.worlds.operations import Event, History

NUMBERS: Final = ("offset", "high_watermark", "last_stable_offset", "leader_epoch", "generation_id", "position")
COMMITTED: Final = "read_committed"
OUTCOMES: Final = ("ok", "fail", "info")


def changed_history(history: History, seed: int) -> History:
    """Return the history with one change, sometimes two; events that cannot follow each other are never produced."""
    rng = random.Random(seed)
    result = deepcopy(history)
    for _ in range(rng.choice((1, 1, 1, 2))):
        rng.choice(CHANGES)(result, rng)
    return result


def pairs_of(history: History) -> list[list[Event]]:
    """Return the events of each operation; events of the nemesis are left out."""
    pairs: list[list[Event]] = []
    opened: dict[int | str, list[Event]] = {}
    for event in history:
        if event["process"] == "nemesis":
            continue
        if event["type"] != "invoke" and event["process"] in opened:
            opened.pop(event["process"]).append(event)
            continue
        pairs.append([event])
        if event["type"] == "invoke":
            opened[event["process"]] = pairs[-1]
    return pairs


def without(history: History, pair: list[Event]) -> History:
    return [event for event in history if not any(event is one for one in pair)]


def _change_number(history: History, rng: random.Random) -> None:
    places = [(pair, name) for pair in pairs_of(history) for name in NUMBERS if isinstance(pair[-1].get(name), int)]
    if places:
        pair, name = rng.choice(places)
        value = max(pair[-1][name] + rng.choice((-2, -1, 1, 1)), -1 if name == "offset" else 0)
        for event in pair:
            if name in event:
                event[name] = value


def _change_records(history: History, rng: random.Random) -> None:
    lists = [event["value"] for event in history if event["f"] == "fetch" and event.get("value")]
    lists += [rows for event in history if event["f"] == "poll" for rows in (event.get("value") or {}).values()]
    if lists := [rows for rows in lists if rows]:
        rows, kind = rng.choice(lists), rng.randrange(4)
        place = rng.randrange(len(rows))
        if kind == 0 and len(rows) > 1:
            del rows[place]
        elif kind == 1:
            rows[place][0] = max(rows[place][0] + rng.choice((-1, 1)), 0)
        elif kind == 2:
            rows[place][1] = rng.randint(1, 8)
        else:
            rows.insert(place, [rows[place][0] + rng.choice((0, 1)), rng.randint(1, 8)])


def _change_offsets(history: History, rng: random.Random) -> None:
    kinds = {"commit", "committed", "send_offsets"}
    if pairs := [pair for pair in pairs_of(history) if pair[0]["f"] in kinds and pair[-1].get("value")]:
        pair = rng.choice(pairs)
        offsets = {key: max(offset + rng.choice((-1, 1)), -1) for key, offset in pair[-1]["value"].items()}
        for event in pair:
            if "value" in event:
                event["value"] = offsets


def _change_outcome(history: History, rng: random.Random) -> None:
    kinds = {"send", "end_txn", "commit", "send_offsets"}
    if pairs := [pair for pair in pairs_of(history) if pair[0]["f"] in kinds and len(pair) == 2]:
        _, completion = rng.choice(pairs)
        completion["type"] = rng.choice([outcome for outcome in OUTCOMES if outcome != completion["type"]])
        if completion["type"] != "ok":
            completion.pop("offset", None)
            completion.pop("leader_epoch", None)
        completion.pop("error", None)


def _change_choice(history: History, rng: random.Random) -> None:
    """Change the isolation of a read, or the requested outcome of a transaction."""
    other = {"commit": "abort", "abort": "commit"}
    pairs = [pair for pair in pairs_of(history) if pair[0]["f"] in {"fetch", "poll", "end_txn"}]
    if pairs:
        for event in rng.choice(pairs):
            if event["f"] == "end_txn":
                event["value"] = other[event["value"]]
            else:
                event["isolation"] = (
                    "read_uncommitted" if "uncommitted" not in event.get("isolation", "") else COMMITTED
                )


def _move_records(history: History, rng: random.Random) -> None:
    """Swap two offsets of a partition, or lose one, in all acknowledgements and reads."""
    places = sorted({(e["partition"], e["offset"]) for e in history if e["f"] == "send" and e.get("offset", -1) >= 0})
    if not places:
        return
    partition, lost = rng.choice(places)
    other = rng.choice([offset for number, offset in places if number == partition])
    for event in history:
        if event.get("partition") == partition and event.get("offset") in {lost, other} and other != lost:
            event["offset"] = lost + other - event["offset"]
        if event["f"] == "fetch" and event.get("value") and event["partition"] == partition:
            event["value"] = _swapped(event["value"], lost, other)
        if event["f"] == "poll" and f"t-{partition}" in (event.get("value") or {}):
            event["value"][f"t-{partition}"] = _swapped(event["value"][f"t-{partition}"], lost, other)


def _swapped(rows: list[list[Any]], lost: int, other: int) -> list[list[Any]]:
    """Swap the two offsets, or leave out the first if they are equal."""
    if lost == other:
        return [row for row in rows if row[0] != lost]
    return sorted([lost + other - offset if offset in {lost, other} else offset, value] for offset, value in rows)


def _drop(history: History, rng: random.Random) -> None:
    if pairs := pairs_of(history):
        history[:] = without(history, rng.choice(pairs))


def _move(history: History, rng: random.Random) -> None:
    """Move one event past events of other processes."""
    at = rng.randrange(1, len(history)) if len(history) > 1 else 0
    step = rng.choice((-1, 1))
    for _ in range(rng.randint(1, 6)):
        to = at + step
        if at == 0 or not 0 < to < len(history) or history[to]["process"] == history[at]["process"]:
            return
        history[at], history[to] = history[to], history[at]
        at = to


CHANGES: Final[list[Callable[[History, random.Random], None]]] = [
    _change_number, _change_number, _change_records, _change_records, _change_offsets, _change_outcome, _change_choice,
    _drop, _move, _move, _move_records,
]  # fmt: skip
