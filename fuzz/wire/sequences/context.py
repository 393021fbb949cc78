"""The context of a running sequence: requests in random versions, topics, and violations of the model."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from highwater.fuzz.wire.connection import connect
from highwater.fuzz.wire.oracles.allowed_errors import is_allowed
from highwater.fuzz.wire.oracles.responses import Failure, Oracle, code_name
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import DecodeError, ErrorCode, FrameSizeError
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from highwater.reference.wire.registry import Api, api_of

TOPICS: Final = tuple(f"fuzz-model-{n}" for n in range(4))
"""Topics that the cases of the stream never name."""
LATEST, EARLIEST = -1, -2
ANSWER_S: Final = 5.0
SHOWN: Final = 600
RETRIABLE: Final = frozenset({
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip
"""Error codes after which a client retries; they neither confirm nor violate the model."""
MODELLED_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    0: (3, 12), 1: (4, 12), 2: (1, 9), 3: (1, 12), 8: (1, 8), 9: (1, 8), 10: (0, 2), 11: (1, 8), 22: (0, 4), 24: (0, 3),
    25: (0, 4), 26: (0, 4), 28: (0, 4), 19: (0, 7), 20: (0, 5),
}  # fmt: skip
"""Versions that the sequences support: topics by name, one transaction at a time, classic groups."""


class Violation(Exception):
    """The broker's response violates the model. `transcript` lists requests and responses."""

    def __init__(self, failure: Failure, api: Api, version: int) -> None:
        super().__init__(failure.message)
        self.failure, self.api, self.version = failure, api, version
        self.transcript: list[str] = []


class SequenceAbandoned(Exception):
    """The sequence cannot continue, without a failure of the target."""


@dataclass
class SequenceContext:
    """One run of a sequence. `messages` are requests and responses; `without` are numbers of steps to leave out."""

    address: str
    served: Mapping[int, tuple[int, int]]
    rng: random.Random
    without: frozenset[int] = frozenset()
    steps_begun: int = 0
    messages: list[tuple[str, int, Any]] = field(default_factory=list)
    claims: dict[str, "SequenceContext"] = field(default_factory=dict)
    """Topics and transactional ids by the sequence that uses them; shared by all that run in parallel."""
    _connections: list[Connection] = field(default_factory=list)
    _last: tuple[Api, int] | None = None

    def steps(self, at_least: int, at_most: int) -> Iterator[int]:
        """Yield step numbers. Each step has a random generator of its own, so leaving one out changes no other."""
        seed = self.rng.getrandbits(64)
        for number in range(self.rng.randint(at_least, at_most)):
            self.steps_begun = number + 1
            self.rng = random.Random(f"{seed}:{number}")
            if number not in self.without:
                yield number

    def connect(self) -> Connection:
        """Open a connection, which `close` closes."""
        made = connect(self.address, ANSWER_S)
        self._connections.append(made)
        return made

    def transcript(self) -> list[str]:
        """Return requests and responses, one line each."""
        return [f"{direction} v{version} {message}"[:SHOWN] for direction, version, message in self.messages]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for name in [name for name, owner in self.claims.copy().items() if owner is self]:
            del self.claims[name]

    def claim(self, name: str) -> None:
        """Reserve a name; SequenceAbandoned if another running sequence has it."""
        if self.claims.setdefault(name, self) is not self:
            raise SequenceAbandoned(f"another sequence uses {name}")

    def supports(self, *keys: int) -> bool:
        return all(self._range(key) is not None for key in keys)

    def _range(self, key: int) -> tuple[int, int] | None:
        first, last = self.served.get(key, (0, -1))
        low, high = MODELLED_VERSIONS.get(key, (first, last))
        return (max(first, low), min(last, high)) if max(first, low) <= min(last, high) else None

    def version(self, request: type[Any], *, at_least: int = 0, at_most: int = 99) -> int:
        """Return a random version in the range; SequenceAbandoned if the target supports none."""
        found = self._range(api_of(request).key)
        if found is None or max(found[0], at_least) > min(found[1], at_most):
            raise SequenceAbandoned(f"does not support {api_of(request).name}")
        return self.rng.randint(max(found[0], at_least), min(found[1], at_most))

    def call(self, connection: Connection, message: Any, version: int | None = None) -> Any:
        version = self.send(connection, message, version)
        return self.receive(connection, type(message), version)

    def send(self, connection: Connection, message: Any, version: int | None = None) -> int:
        """Send a request without waiting; return its version."""
        version = self.version(type(message)) if version is None else version
        self._last = (api_of(type(message)), version)
        self.messages.append(("->", version, message))
        try:
            connection.send(message, version)
        except (ConnectionClosedError, ReplyTimeoutError) as error:
            raise SequenceAbandoned("the connection was closed") from error
        return version

    def receive(self, connection: Connection, request: type[Any], version: int) -> Any:
        """Return the oldest pending response; Violation for a timeout, or if it does not decode."""
        api = api_of(request)
        self._last = (api, version)
        try:
            answer = connection.receive(api, version)
        except ConnectionClosedError as error:
            raise SequenceAbandoned("the connection was closed") from error
        except ReplyTimeoutError:
            self.violates(f"no answer within {ANSWER_S:g} s", Oracle.DEADLINE)
        except (DecodeError, FrameSizeError) as error:
            self.violates(f"{api.name} v{version}: {error}", Oracle.DECODE)
        self.messages.append(("<-", version, answer))
        return answer

    def send_bytes(self, connection: Connection, data: bytes, request: type[Any], version: int) -> None:
        """Send frames of which the first is such a request."""
        self._last = (api_of(request), version)
        self.messages.append(("->", version, data.hex()))
        try:
            connection.send_bytes(data)
        except (ConnectionClosedError, ReplyTimeoutError) as error:
            raise SequenceAbandoned("the connection was closed") from error

    def receive_frame(self, connection: Connection) -> bytes:
        """Return the next response without its size; Violation for a timeout."""
        try:
            return connection.receive_frame(ANSWER_S)
        except ConnectionClosedError as error:
            raise SequenceAbandoned("the connection was closed") from error
        except ReplyTimeoutError:
            self.violates(f"no answer within {ANSWER_S:g} s", Oracle.DEADLINE)
        except FrameSizeError as error:
            self.violates(f"no frame: {error}", Oracle.DECODE)

    def violates(self, message: str, oracle: Oracle = Oracle.INVARIANT) -> NoReturn:
        assert self._last is not None
        raise self.violation(message, oracle, *self._last)

    @staticmethod
    def violation(message: str, oracle: Oracle, api: Api, version: int) -> Violation:
        return Violation(Failure(oracle, message), api, version)

    def require(self, holds: bool, message: str) -> None:
        if not holds:
            self.violates(message)

    def accepted(self, code: int, *refusals: ErrorCode) -> bool:
        """Return True for no error, False for an expected error.

        Raises SequenceAbandoned for a retriable error, Violation for any other.
        """
        assert self._last is not None
        if code == ErrorCode.NONE or code in refusals:
            return code == ErrorCode.NONE
        if code in RETRIABLE:
            raise SequenceAbandoned(code_name(code))
        api, version = self._last
        if is_allowed(api.key, version, code):
            return self.violates(f"refused with {code_name(code)}")
        return self.violates(f"{api.name} v{version}: {code_name(code)}", Oracle.ERROR_CODE)

    # -- topics ----------------------------------------------------------------------------------

    def topic(self, connection: Connection, name: str = "") -> str:
        """Return a topic with a partition 0, a random one if unnamed; create it if it does not exist.

        Later random choices do not depend on its existence, so that a replay on a fresh target takes the same steps.
        """
        is_drawn = not name
        name, seed = name or self.rng.choice(TOPICS), self.rng.getrandbits(64)
        if is_drawn:
            self.claim(name)
        request = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        if self.log_end(connection, name) is None:
            self.call(connection, CreateTopicsRequest(topics=(request,), timeout_ms=5_000))
        self.rng = random.Random(seed)
        return name

    def end(self, connection: Connection, topic: str) -> int:
        """Return the log end offset."""
        found = self.log_end(connection, topic)
        if found is None:
            raise SequenceAbandoned("the topic does not exist yet")
        return found

    def log_end(self, connection: Connection, topic: str) -> int | None:
        """Return the log end offset, None if the topic or its leader does not exist yet."""
        part = self.list_offset(connection, topic, LATEST)
        return None if part.error_code in RETRIABLE else part.offset

    def list_offset(self, connection: Connection, topic: str, timestamp: int) -> Any:
        request = ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(timestamp=timestamp),))
        (answer,) = self.call(connection, ListOffsetsRequest(replica_id=-1, topics=(request,))).topics
        return answer.partitions[0]
