"""Compare the values in two brokers' replies to the same requests, field by field, after replacing what may differ.

A case checks what its clause says; two brokers that both pass may still return other values elsewhere. Ids, addresses,
times and names that the broker or the run chose are replaced by what kind of value they are. Replies are paired by case
and request; a request that was repeated while the case waited counts once, with its last reply.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, Final

import msgspec

from highwater.conformance.client.exchange import Event, ExchangedReply
from highwater.conformance.running.verdicts import CaseResult, CaseVerdict
from highwater.errors import ExitCode
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.framing import decode_request, decode_response
from highwater.reference.wire.log_entries import decode_entry, entries

SAME_IN_NO_TWO_BROKERS: Final = frozenset(
    {
        *("host", "host_name", "port", "rack", "cluster_id", "node_id", "broker_id", "leader", "leader_id", "brokers"),
        *("controller_id", "client_host", "client_id", "replicas", "replica_nodes", "isr_nodes", "offline_replicas"),
        *("eligible_leader_replicas", "last_known_elr", "adding_replicas", "removing_replicas", "topic_id", "log_dir"),
        *("producer_id", "member_id", "session_id", "correlation_id", "coordinator_epoch", "preferred", "auth_bytes"),
        *("timestamp", "last_timestamp", "log_append_time_ms", "throttle_time_ms", "transaction_start_time_ms"),
        *("error_message", "documentation", "size", "total_bytes", "usable_bytes", "leader_epoch"),
        *("partition_leader_epoch", "committed_leader_epoch", "current_leader_epoch"),
    }
)
"""Fields of which only the kind is compared: null, empty, negative, or a value."""
IDENTITY: Final = (
    *("name", "topic", "key", "group_id", "api_key", "transactional_id", "index", "partition_index"),
    "group_instance_id",
)
"""Fields by which the elements of two lists are paired, since their order is the broker's choice."""
OWN: Final = re.compile(r"\[[^]]*hw-[^]]*]", re.IGNORECASE)
"""A name that the case chose, in a path."""
THERE: Final = "an element"
ABSENT: Final = "absent"
EMPTY: Final = "[]"
CHOSEN: Final = re.compile(r"hw-[0-9a-f]{10}", re.IGNORECASE)
"""The beginning of the names that a case chooses; each has its own."""


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Two values of one field; `replies` are so many pairs of replies, `case` is the first with them."""

    api: str
    versions: list[int]
    field: str
    here: str
    there: str
    replies: int
    case: str


class ValueComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, and what differs; `unpaired` counts replies to requests that only one broker received."""

    here: str
    there: str
    cases: int
    left_out: int
    replies: int
    values: int
    unpaired: int
    differences: list[ValueDifference]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.VIOLATED if self.differences else ExitCode.HELD if self.values else ExitCode.UNDECIDED


# -- from a case's log -----------------------------------------------------------------------------


def replies_of(events: Iterable[Event], prefix: str) -> list[ExchangedReply]:
    """Return the replies of a case that decode, each with its request; `prefix` is that of the case's names.

    What cases at the same time have created is left out.
    """
    asked: dict[tuple[str, bytes], list[Event]] = defaultdict(list)
    found: list[ExchangedReply] = []
    for event in events:
        if event.api is not None:
            waiting = asked[event.address, event.data[4:8]]
            if waiting:
                found += _reply(waiting.pop(0), event, prefix)
        elif event.data:  # size, api key, version, correlation id
            asked[event.address, event.data[8:12]].append(event)
    return found


def _reply(request: Event, reply: Event, prefix: str) -> list[ExchangedReply]:
    assert reply.api is not None
    try:
        _, asked = decode_request(request.data[4:])
        _, answer = decode_response(reply.api, reply.version, reply.data[4:])
    except WireError:
        return []
    text = msgspec.json.encode(list(_values("", asked, prefix))).decode()
    return [
        ExchangedReply(
            api=reply.api.name, version=reply.version, request=text, values=dict(_values("", answer, prefix))
        )
    ]


def _values(path: str, value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    if is_dataclass(value):
        for field in fields(value):
            found, inner = getattr(value, field.name), f"{path}.{field.name}".lstrip(".")
            if field.name in SAME_IN_NO_TWO_BROKERS:
                yield inner, _kind(found)
            else:
                yield from _values(inner, found, prefix)
    elif isinstance(value, tuple) and any(map(is_dataclass, value)):
        for number, element in enumerate(value):
            names = (_plain(getattr(element, name)) for name in IDENTITY if getattr(element, name, None) is not None)
            label = next(names, str(number)).replace(prefix, "hw")
            if not CHOSEN.search(label):
                yield f"{path}[{label}]", THERE
                yield from _values(f"{path}[{label}]", element, prefix)
    else:
        yield path, CHOSEN.sub("hw", _plain(value))


def _kind(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return "a number" if value >= 0 else str(value)
    return "null" if value is None else "a value" if value else "empty"


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return _records(value)
    if isinstance(value, tuple | frozenset):
        return "[" + ", ".join(sorted(map(_plain, value))) + "]"
    return "null" if value is None else str(value)


def _records(data: bytes) -> str:
    """Return record batches as offsets, keys and values, and other bytes in hexadecimal."""
    try:
        decoded = [decode_entry(data, position) for position, _ in entries(data)]
    except WireError:
        decoded = []
    if not decoded:
        return data.hex() if len(data) <= 64 else f"{len(data)} bytes"
    return str([(record.offset, record.key, record.value) for _, records in decoded for record in records])


# -- two runs --------------------------------------------------------------------------------------


def compare_values(
    here: str, there: str, results: Sequence[CaseResult], others: Sequence[CaseResult]
) -> ValueComparison:
    """Compare the replies in the cases that pass on both."""
    passed = {result.case: result for result in others if result.verdict is CaseVerdict.PASS}
    both = [(one, passed[one.case]) for one in results if one.verdict is CaseVerdict.PASS and one.case in passed]
    found: dict[tuple[str, str, str, str], list[tuple[int, str]]] = defaultdict(list)
    replies = values = unpaired = 0
    for one, other in both:
        pairs, alone = _paired(_last_replies(one.replies), _last_replies(other.replies))
        unpaired += alone
        replies += len(pairs)
        for mine, theirs in pairs:
            values += len(mine.values)
            for path, a, b in _differing(mine.values, theirs.values):
                found[mine.api, OWN.sub("[hw]", path), a, b].append((mine.version, one.case))
    differences = [
        ValueDifference(
            api=api, versions=sorted({version for version, _ in seen}), field=path, here=a, there=b, replies=len(seen),
            case=seen[0][1],
        )
        for (api, path, a, b), seen in sorted(found.items())
    ]  # fmt: skip
    left_out = len({result.case for result in [*results, *others]}) - len(both)
    return ValueComparison(
        here=here, there=there, cases=len(both), left_out=left_out, replies=replies, values=values, unpaired=unpaired,
        differences=differences,
    )  # fmt: skip


def _differing(here: dict[str, str], there: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield path and both values where they differ; of an element that only one has, only the element itself."""
    alone = {path for path in here.keys() ^ there.keys() if THERE in {here.get(path), there.get(path)}}
    for path in {**here, **there}:
        a, b = here.get(path, ABSENT), there.get(path, ABSENT)
        inside = any(path.startswith(f"{element}.") for element in alone) if ABSENT in {a, b} else False
        if a != b and not inside and {a, b} != {ABSENT, EMPTY}:  # of a list with elements each of them is compared
            yield path, a, b


def _last_replies(replies: Sequence[ExchangedReply]) -> list[ExchangedReply]:
    """Leave out all but the last reply to a request that was repeated at once."""
    return [[*repeated][-1] for _, repeated in groupby(replies, _key)]


def _key(reply: ExchangedReply) -> tuple[str, int, str]:
    return reply.api, reply.version, reply.request


def _paired(
    here: Sequence[ExchangedReply], there: Sequence[ExchangedReply]
) -> tuple[list[tuple[ExchangedReply, ExchangedReply]], int]:
    matcher = SequenceMatcher(None, [*map(_key, here)], [*map(_key, there)], autojunk=False)
    pairs = [
        (here[block.a + number], there[block.b + number])
        for block in matcher.get_matching_blocks()
        for number in range(block.size)
    ]
    return pairs, len(here) + len(there) - 2 * len(pairs)


def lines(comparison: ValueComparison, most: int = 0) -> Iterator[str]:
    """Yield a line for each difference (at most `most`, if not 0), and what was compared."""
    shown = comparison.differences[: most or None]
    for each in shown:
        times = f"{each.replies} replies, first " if each.replies > 1 else ""
        only = {THERE: comparison.here, ABSENT: comparison.there}
        is_alone = {each.here, each.there} == {THERE, ABSENT}
        differs = f"only {only[each.here]} has it" if is_alone else f"{_short(each.here)}, not {_short(each.there)}"
        versions = f"v{each.versions[0]}" + (f" to v{each.versions[-1]}" if len(each.versions) > 1 else "")
        yield f"{each.api} {versions} {each.field}: {differs} ({times}{each.case})"
    if len(shown) < len(comparison.differences):
        yield f"... {len(comparison.differences) - len(shown)} more: --json prints all"
    yield (
        f"{comparison.here} against {comparison.there}: {len(comparison.differences)} kinds of differences in"
        f" {comparison.values:,} values of {comparison.replies:,} replies of {comparison.cases:,} cases;"
        f" {comparison.left_out:,} cases do not pass on both, {comparison.unpaired:,} replies have no counterpart"
    )


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
