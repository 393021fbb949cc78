"""Decides which message a fault strikes, and counts what each line matched."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.proxy.faults import MessageFault, Side
from highwater.fuzz.proxy.items import GROUPS, KEY_TYPE, TRANSACTIONS, Item, TopicNames, items, named_ids, text_of
from highwater.fuzz.proxy.sessions import is_incremental

COORDINATOR_KEYS = ("key", "coordinator_keys")
COORDINATED = {0: "group", 1: "transaction"}
"""What the key of FindCoordinator is, by its type."""
EVERY: Final = "*"
NOT_DECODED: Final = "the body cannot be decoded"
UNKNOWN_ID: Final = "the request or response states an id of a topic that no response has named"
UNKNOWN_SESSION: Final = "the first request of its fetch session, which names the partitions, did not pass"


class UndecidableError(Exception):
    """Whether a message passes the filters of a line is not known; says why."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A message that may be struck. `body` decodes the request; `response` is the decoded response, if it is one."""

    api: str
    version: int
    side: Side
    client: str
    body: Callable[[], Any | None]
    response: Any | None = None

    def __str__(self) -> str:
        return f"{self.api} version {self.version} {self.side} of client {self.client or 'without a name'}"


@dataclass(slots=True)
class Armed:
    """A line, the number of messages that it matched, and how many of them it struck."""

    fault: MessageFault
    draw: random.Random
    matched: int = 0
    struck: int = 0
    undecided: Counter[str] = field(default_factory=Counter)
    """How many messages may have passed the filters, by the reason why that is not known. None of them is struck."""

    def matches(self, subject: Subject, topics: TopicNames) -> bool:
        """Return whether a message passes the filters; count it, if that cannot be decided."""
        try:
            return matches(self.fault, subject, topics)
        except UndecidableError as error:
            self.undecided[str(error)] += 1
            return False

    def strikes(self) -> bool:
        """Count a matching message, and return whether it is one of those that the line is about."""
        fault = self.fault
        self.matched += 1
        due = (
            (not fault.times or self.struck < fault.times)
            and (not fault.nth or self.matched == fault.nth)
            and (not fault.every or self.matched % fault.every == 0)
            and (fault.percent == 100 or self.draw.random() * 100 < fault.percent)
        )
        self.struck += due
        return due


@dataclass(slots=True)
class Faults:
    """The lines of a proxy, in their order; the first one that strikes a message is the only one.

    `topics` holds the names of topics by their ids, as responses state them. It keeps the ids of deleted topics: an id
    is never used again, so a topic that is created again has another one, and clients may use either of them.
    """

    seed: int = 0
    lines: list[Armed] = field(default_factory=list)
    removed: list[Armed] = field(default_factory=list)
    topics: dict[bytes, str] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    on_strike: Callable[[MessageFault, str], None] | None = None

    def add(self, fault: MessageFault) -> Armed:
        number = len(self.lines) + len(self.removed)
        armed = Armed(fault, random.Random(f"{self.seed} {number} {fault.line}"))
        self.lines.append(armed)
        return armed

    def remove(self, armed: Armed) -> None:
        self.lines.remove(armed)
        self.removed.append(armed)

    def learn(self, message: Any) -> None:
        """Remember the names of topics that a message states together with their ids."""
        self.topics.update(named_ids(message))

    def concerning(self, api: str, version: int, side: Side) -> Sequence[Armed]:
        """Return the lines that are about such messages, whatever their bodies."""
        return [armed for armed in self.lines if armed.fault.concerns(api, version, side)]

    def strike(self, subject: Subject) -> MessageFault | None:
        """Return the fault of this message, if any. Each line counts the messages that it matches before it strikes."""
        for armed in self.concerning(subject.api, subject.version, subject.side):
            if armed.matches(subject, self.topics) and armed.strikes():
                if self.on_strike is not None:
                    self.on_strike(armed.fault, str(subject))
                return armed.fault
        return None


def matches(fault: MessageFault, subject: Subject, topics: TopicNames) -> bool:
    """Return whether a message passes the filters of a line. Raises UndecidableError if that is not known."""
    if not fault.admits("client", subject.client):
        return False
    if not any(name != "client" for name, _ in fault.filters):
        return True
    request = subject.body()
    if request is None:
        raise UndecidableError(NOT_DECODED)
    return (
        _names(fault, "group", request, GROUPS)
        and _names(fault, "transaction", request, TRANSACTIONS)
        and _names_item(fault, request, subject.response, topics)
    )


def concerned(fault: MessageFault) -> Callable[[Item], bool] | None:
    """Return which partitions a line is about; None if it is about all of them."""
    if fault.filter("topic") is None and fault.filter("partition") is None:
        return None
    return lambda item: _admits_item(fault, item) is True


def _admits_item(fault: MessageFault, item: Item) -> bool | None:
    """Return whether the filters of a line admit a partition; None if the name of its topic is not known."""
    topic, partition = item
    if partition is None and fault.filter("partition") is not None:
        return False
    if not fault.admits("partition", str(partition)):
        return False
    if topic is None:
        return True if fault.filter("topic") in {None, EVERY} else None
    return fault.admits("topic", topic)


def _names_item(fault: MessageFault, request: Any, response: Any | None, topics: TopicNames) -> bool:
    if concerned(fault) is None:
        return True
    bodies = [request] if response is None else [request, response]
    found = {_admits_item(fault, item) for body in bodies for item in items(body, topics)}
    if True in found:
        return True
    if None in found:
        raise UndecidableError(UNKNOWN_ID)
    if is_incremental(request):
        raise UndecidableError(UNKNOWN_SESSION)
    return False


def _names(fault: MessageFault, name: str, request: Any, fields: tuple[str, ...]) -> bool:
    if fault.filter(name) is None:
        return True
    found = text_of(request, fields)
    if COORDINATED.get(getattr(request, KEY_TYPE, -1)) == name:
        found |= text_of(request, COORDINATOR_KEYS)
    return any(fault.admits(name, each) for each in found)
