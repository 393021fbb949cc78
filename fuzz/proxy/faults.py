"""Faults of single messages, written as lines such as `EndTxn: delay 800 ms once`.

A line says which messages, what happens to them, and when::

    Produce topic=orders partition=0: answer NOT_LEADER_OR_FOLLOWER 3 times
    Fetch response v13-17 client=app-*: close every 20
    EndTxn transaction=pay: late 2500 ms nth 1

Which: an API, several separated by commas, or `any`; then, in any order, `request` (the default) or `response`, `v12`
or `v9-13`, and filters. The value of a filter may contain `*` and `?`. When: `once`, `3 times`, `nth 2`, `every 5`,
`10 %`, or nothing for every message.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, get_args

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.proxy.reach import filters_of
from highwater.names import unknown_name
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.registry import APIS, Api

Side = Literal["request", "response"]
Parameter = Literal["none", "ms", "ms or none", "error"]
ANY: Final = "any"
HELP: Final = "highwater proxy --list"
ALL_VERSIONS: Final = (0, 1 << 15)
API_NAMES: Final = {api.name.casefold(): api.name for api in APIS.values()}


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to a message: its parameter, and the sides on which it can happen."""

    does: str
    takes: Parameter = "none"
    sides: tuple[Side, ...] = get_args(Side)


ACTIONS: Final[Mapping[str, Action]] = {
    "delay": Action("it arrives so much later, and what follows it on the connection waits behind it", "ms"),
    "drop": Action("it is lost, and so is what follows it in this direction: a TCP connection has no gaps"),
    "close": Action("the connection ends instead of it"),
    "duplicate": Action("it arrives twice; the client sees one reply", sides=("request",)),
    "repeat": Action("a copy of it arrives so much later, on a connection of its own", "ms", ("request",)),
    "late": Action("the connection ends, and it arrives so much later on a connection of its own", "ms", ("request",)),
    "swap": Action("it arrives after the next request of the connection", sides=("request",)),
    "answer": Action(
        "a request is answered with this error instead of by the broker; a response gets this error after the broker "
        "has done what was asked",
        "error",
    ),
    "stall": Action("its connection stands still for so long, in both directions", "ms"),
    "black-hole": Action(
        "from then on this client hears nothing, on any connection; for so long, or until the end",
        "ms or none",
        ("request",),
    ),
}
FILTERS: Final[Mapping[str, str]] = {
    "client": "client id",
    "topic": "topic of one of its partitions",
    "partition": "number of one of its partitions",
    "group": "group id",
    "transaction": "transactional id",
}


class MessageFault(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed line. `every`, `nth` and `times` are 0 if the line does not state them; `ms` is -1 without a time."""

    apis: tuple[str, ...]
    side: Side = "request"
    versions: tuple[int, int] = ALL_VERSIONS
    filters: tuple[tuple[str, str], ...] = ()
    action: str
    ms: int = -1
    error: int = 0
    times: int = 0
    nth: int = 0
    every: int = 0
    percent: float = 100.0
    line: str = ""

    def concerns(self, api: str, version: int, side: Side) -> bool:
        """Return whether messages of this API, version and side may match; its filters decide."""
        return (
            side == self.side
            and (api in self.apis or ANY in self.apis)
            and self.versions[0] <= version <= self.versions[1]
        )

    def filter(self, name: str) -> str | None:
        return dict(self.filters).get(name)

    def admits(self, name: str, value: str) -> bool:
        """Return whether a value passes the filter of this name; it does if there is none."""
        pattern = self.filter(name)
        return pattern is None or fnmatchcase(value, pattern)

    @property
    def reads_body(self) -> bool:
        """Return whether more than the header of a request is needed."""
        return self.action == "answer" or any(name != "client" for name, _ in self.filters)

    def __str__(self) -> str:
        return self.line


def parse_fault(line: str) -> MessageFault:
    """Parse a line. Raises UsageError that names the word it does not know, and what there is instead."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{error} in {line!r}", where="fault", hint="close the quotation") from error
    end = next((at for at, word in enumerate(words) if word.endswith(":")), None)
    if end is None or words[0] == ":":
        raise UsageError(
            f"no `API: what happens` in {line!r}", where="fault", hint="such as 'EndTxn: delay 800 ms once'"
        )
    which = [word for word in [*words[:end], words[end][:-1]] if word]
    try:
        fields = {**_which(which), **_what(words[end + 1 :])}
        fault = MessageFault(**fields, line=" ".join(line.split()))
        _check(fault)
    except UsageError as error:
        raise UsageError(error.what, where=f"fault {line!r}", hint=error.hint) from None
    return fault


def _which(words: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"apis": tuple(_api(name) for name in words[0].split(",") if name)}
    filters: list[tuple[str, str]] = []
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if equals:
            if name not in FILTERS:
                raise unknown_name("filter", name, FILTERS, HELP)
            filters.append((name, value))
        elif word in get_args(Side):
            fields["side"] = word
        elif word[0] == "v" and word[1:].replace("-", "", 1).isdigit():
            first, _, last = word[1:].partition("-")
            fields["versions"] = (int(first), int(last or first))
        else:
            raise UsageError(f"{word!r} selects nothing", hint="request, response, v12, v9-13 or NAME=VALUE")
    return {**fields, "filters": tuple(sorted(filters))}


def _api(name: str) -> str:
    if name == ANY:
        return name
    known = API_NAMES.get(name.casefold())
    if known is None:
        raise unknown_name("API", name, API_NAMES.values(), HELP)
    return known


def _what(words: list[str]) -> dict[str, Any]:
    if not words:
        raise UsageError("nothing happens to the message", hint=f"one of: {', '.join(ACTIONS)}")
    name, rest = words[0], words[1:]
    if name == "error":
        raise UsageError("no action 'error'", hint=f"a request is answered with one by `answer {' '.join(rest)}`")
    if name not in ACTIONS:
        raise unknown_name("action", name, ACTIONS, HELP)
    fields: dict[str, Any] = {"action": name}
    takes = ACTIONS[name].takes
    if takes == "error":
        fields["error"] = _error(rest.pop(0) if rest else "")
    elif takes == "ms" or (takes == "ms or none" and "ms" in rest):
        if len(rest) < 2 or not rest[0].isdigit() or rest[1] != "ms":
            raise UsageError(f"{name} needs a time", hint=f"{name} 800 ms")
        fields["ms"], rest = int(rest[0]), rest[2:]
    return {**fields, **dict(_when(rest))}


def _error(name: str) -> int:
    if name.lstrip("-").isdigit():
        return int(name)
    if name.upper() not in ErrorCode.__members__:
        raise unknown_name("error", name, ErrorCode.__members__, HELP)
    return int(ErrorCode[name.upper()])


def _when(words: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of when it happens."""
    while words:
        match words:
            case ["once", *_]:
                yield "times", 1
            case [("nth" | "every") as name, number, *_] if number.isdigit() and int(number) > 0:
                yield name, int(number)
            case [number, "times", *_] if number.isdigit() and int(number) > 0:
                yield "times", int(number)
            case [number, "%", *_] if _percent(number):
                yield "percent", float(number)
            case _:
                raise UsageError(f"{' '.join(words)!r} says no time", hint="once, 3 times, nth 2, every 5 or 10 %")
        words = words[1 if words[0] == "once" else 2 :]


def _percent(word: str) -> bool:
    return word.replace(".", "", 1).isdigit() and 0 < float(word) <= 100


def _check(fault: MessageFault) -> None:
    action = ACTIONS[fault.action]
    if fault.side not in action.sides:
        raise UsageError(f"a {fault.side} has no {fault.action}", hint=f"leave `{fault.side}` out")
    if fault.action == "answer" and not fault.error:
        raise UsageError("NONE is no error", hint="name an error such as NOT_LEADER_OR_FOLLOWER")
    if fault.versions[0] > fault.versions[1]:
        raise UsageError(f"no version is in v{fault.versions[0]}-{fault.versions[1]}", hint="the smaller one first")
    for name in fault.apis:
        api = next((each for each in APIS.values() if each.name == name), None)
        if api is None:
            continue
        if fault.versions[0] > api.max_version:
            raise UsageError(f"no version {fault.versions[0]} of {name}", hint=f"up to {api.max_version} is known")
        _check_filters(fault, api)


def _check_filters(fault: MessageFault, api: Api) -> None:
    known = filters_of(api, fault.versions, response=fault.side == "response")
    within = "" if fault.versions == ALL_VERSIONS else " in these versions"
    for name, _ in fault.filters:
        if name not in known:
            hint = f"filters of it{within}: {', '.join(sorted(known))}"
            raise UsageError(f"no {fault.side} of {api.name} has a {name}{within}", hint=hint)
