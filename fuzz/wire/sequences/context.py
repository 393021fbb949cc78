"""What a play needs: requests in versions drawn by chance, topics to write to, and words for what went wrong."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from highwater.fuzz.wire.allowed_errors import ALLOWED
from highwater.fuzz.wire.connection import connect
from highwater.fuzz.wire.oracles import Broken, Oracle, code_name
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import DecodeError, ErrorCode, FrameSizeError
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from highwater.reference.wire.registry import Api, api_of

TOPICS: Final = tuple(f"fuzz-model-{n}" for n in range(4))
"""The cases of the stream never name them."""
LATEST, EARLIEST = -1, -2
ANSWER_S: Final = 5.0
SHOWN: Final = 600
NOT_NOW: Final = frozenset({
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip
"""A client would try again: nothing is said of the model."""
WRITTEN_FOR: Final[Mapping[int, tuple[int, int]]] = {
    0: (3, 12), 1: (4, 12), 2: (1, 9), 3: (1, 12), 8: (1, 8), 9: (1, 8), 10: (0, 2), 11: (1, 8), 22: (0, 4), 24: (0, 3),
    25: (0, 4), 26: (0, 4), 28: (0, 4), 19: (0, 7),
}  # fmt: skip
"""Versions that the plays have words for: topics by name, one transaction at a time, classic groups."""


class Violation(Exception):
    """The broker says what the model does not."""

    def __init__(self, broken: Broken, api: Api, version: int) -> None:
        super().__init__(broken.message)
        self.broken, self.api, self.version = broken, api, version
        self.said: list[str] = []


class Abandoned(Exception):
    """The play cannot go on, and that is nobody's fault."""


@dataclass
class Stage:
    """One play. `said` is what was asked and answered, for people; `without` are steps left out, by number."""

    address: str
    served: Mapping[int, tuple[int, int]]
    chance: random.Random
    without: frozenset[int] = frozenset()
    steps_begun: int = 0
    said: list[tuple[str, int, Any]] = field(default_factory=list)
    claims: dict[str, "Stage"] = field(default_factory=dict)
    """Of all plays that are on at a time: who has what to itself."""
    _lines: list[Connection] = field(default_factory=list)
    _last: tuple[Api, int] | None = None

    def steps(self, at_least: int, at_most: int) -> Iterator[int]:
        """So many steps of a play. Each has chances of its own, so that one more or less changes no other."""
        seed = self.chance.getrandbits(64)
        for number in range(self.chance.randint(at_least, at_most)):
            self.steps_begun = number + 1
            self.chance = random.Random(f"{seed}:{number}")
            if number not in self.without:
                yield number

    def line(self) -> Connection:
        """A connection of its own."""
        made = connect(self.address, ANSWER_S)
        self._lines.append(made)
        return made

    def told(self) -> list[str]:
        """What was asked and answered."""
        return [f"{way} v{version} {message}"[:SHOWN] for way, version, message in self.said]

    def close(self) -> None:
        for line in self._lines:
            line.close()
        for name in [name for name, owner in self.claims.copy().items() if owner is self]:
            del self.claims[name]

    def claim(self, name: str) -> None:
        """To have it to itself. Abandoned if another play does."""
        if self.claims.setdefault(name, self) is not self:
            raise Abandoned(f"another play is at {name}")

    def speaks(self, *keys: int) -> bool:
        return all(self._range(key) is not None for key in keys)

    def _range(self, key: int) -> tuple[int, int] | None:
        first, last = self.served.get(key, (0, -1))
        low, high = WRITTEN_FOR.get(key, (first, last))
        return (max(first, low), min(last, high)) if max(first, low) <= min(last, high) else None

    def version(self, request: type[Any], *, at_least: int = 0, at_most: int = 99) -> int:
        """Abandoned where the target speaks none."""
        found = self._range(api_of(request).key)
        if found is None or max(found[0], at_least) > min(found[1], at_most):
            raise Abandoned(f"does not speak {api_of(request).name}")
        return self.chance.randint(max(found[0], at_least), min(found[1], at_most))

    def call(self, line: Connection, message: Any, version: int | None = None) -> Any:
        version = self.ask(line, message, version)
        return self.answer(line, type(message), version)

    def ask(self, line: Connection, message: Any, version: int | None = None) -> int:
        """Send and do not wait; the version that was drawn."""
        version = self.version(type(message)) if version is None else version
        self._last = (api_of(type(message)), version)
        self.said.append(("->", version, message))
        try:
            line.send(message, version)
        except (ConnectionClosedError, ReplyTimeoutError) as error:
            raise Abandoned("the connection is gone") from error
        return version

    def answer(self, line: Connection, request: type[Any], version: int) -> Any:
        """The oldest answer that is due. Violation for silence, and for what does not decode."""
        api = api_of(request)
        self._last = (api, version)
        try:
            answer = line.receive(api, version)
        except ConnectionClosedError as error:
            raise Abandoned("the connection is gone") from error
        except ReplyTimeoutError:
            self.violates(f"no answer within {ANSWER_S:g} s", Oracle.DEADLINE)
        except (DecodeError, FrameSizeError) as error:
            self.violates(f"{api.name} v{version}: {error}", Oracle.DECODE)
        self.said.append(("<-", version, answer))
        return answer

    def violates(self, message: str, oracle: Oracle = Oracle.INVARIANT) -> NoReturn:
        assert self._last is not None
        raise self.violation(message, oracle, *self._last)

    @staticmethod
    def violation(message: str, oracle: Oracle, api: Api, version: int) -> Violation:
        return Violation(Broken(oracle, message), api, version)

    def require(self, holds: bool, message: str) -> None:
        if not holds:
            self.violates(message)

    def accepted(self, code: int, *refusals: ErrorCode) -> bool:
        """Was it done? Refusals are those that the model knows here; others say that it is no time for this play."""
        assert self._last is not None
        if code == ErrorCode.NONE or code in refusals:
            return code == ErrorCode.NONE
        if code in NOT_NOW:
            raise Abandoned(code_name(code))
        api, version = self._last
        if code in ALLOWED[api.key]:
            return self.violates(f"refused with {code_name(code)}")
        return self.violates(f"{api.name} v{version}: {code_name(code)}", Oracle.ERROR_CODE)

    # -- topics ----------------------------------------------------------------------------------

    def topic(self, line: Connection, name: str = "") -> str:
        """One to write to, by chance if unnamed, with a partition 0; made if it is not there.

        Whether it was there must change nothing that is drawn later, or a replay on a fresh target would go elsewhere.
        """
        is_drawn = not name
        name, seed = name or self.chance.choice(TOPICS), self.chance.getrandbits(64)
        if is_drawn:
            self.claim(name)
        asked = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        if self._end(line, name) is None:
            self.call(line, CreateTopicsRequest(topics=(asked,), timeout_ms=5_000))
        self.chance = random.Random(seed)
        return name

    def end(self, line: Connection, topic: str) -> int:
        """The log's end offset."""
        found = self._end(line, topic)
        if found is None:
            raise Abandoned("the topic is not there yet")
        return found

    def _end(self, line: Connection, topic: str) -> int | None:
        part = self.listed(line, topic, LATEST)
        return None if part.error_code in NOT_NOW else part.offset

    def listed(self, line: Connection, topic: str, timestamp: int) -> Any:
        asked = ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(timestamp=timestamp),))
        (answer,) = self.call(line, ListOffsetsRequest(replica_id=-1, topics=(asked,))).topics
        return answer.partitions[0]
