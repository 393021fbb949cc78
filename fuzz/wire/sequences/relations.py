"""Requests that mean the same are answered the same: with an unknown tag, in other segments, in the next version,
with null for a list that may be empty.

Only of requests that change nothing. A request is asked before and after its likeness: what changed meanwhile by
itself proves nothing.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from highwater.fuzz.wire.generate.cases import with_size
from highwater.fuzz.wire.generate.requests import CLIENT_ID, generate
from highwater.fuzz.wire.oracles import Oracle
from highwater.fuzz.wire.sequences.context import Abandoned, Stage
from highwater.fuzz.wire.sequences.versions import difference
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import EncodeError, FrameSizeError
from highwater.reference.wire.framing import decode_request_header, encode_request, encode_request_header
from highwater.reference.wire.registry import APIS, Api

READS: Final = frozenset({2, 3, 9, 10, 15, 16, 18, 23, 32, 35, 46, 50, 60, 65, 66, 69, 75})
UNKNOWN_TAG: Final = (99, b"x")
TAG_SECTION: Final = b"\x01\x63\x01x"
NUMBER: Final = 7
NAMELESS: Final = (("no", None), ("an empty", ""))
DESCRIBE_CREDENTIALS: Final = 50
NO_USERS, NULL_USERS = b"\x01\x00", b"\x00\x00"
"""Both ask for all users (DescribeUserScramCredentialsRequest.json)."""
CLOSED, SILENT = b"closed", b"silent"
ANSWER_S: Final = 2.0
PAUSE_S: Final = 0.01
SLOWLY_SHARE: Final = 0.05
"""Of the requests: so slowly that also a busy target reads their segments one by one. It costs, so not always."""


@dataclass
class Asker:
    """Keeps a connection for as long as it is answered in order."""

    stage: Stage
    line: Connection | None = None

    def told(self, *segments: bytes, pause_s: float = 0.0) -> bytes:
        """The answer without its size, or that there was none."""
        line, self.line = self.line or self.stage.line(), None
        try:
            for number, segment in enumerate(segments):
                if number and pause_s:
                    time.sleep(pause_s)
                line.send_bytes(segment)
            answer = line.receive_frame(ANSWER_S)
        except ConnectionClosedError:
            return CLOSED
        except ReplyTimeoutError:
            return SILENT
        except FrameSizeError as error:
            raise Abandoned("no answer") from error
        self.line = line
        return answer


def play(stage: Stage) -> None:
    """Some requests, each with all its likenesses."""
    asker = Asker(stage)
    keys = sorted(READS & stage.served.keys())
    for _ in stage.steps(4, 4):
        api = APIS[stage.chance.choice(keys)]
        version = stage.chance.randint(*stage.served[api.key])
        try:
            message = generate(stage.chance, api, version)
            frame = encode_request(message, version, NUMBER, CLIENT_ID)
        except EncodeError:
            continue
        first = asker.told(frame)
        if first == SILENT:
            raise Abandoned("no answer")
        pause_s = PAUSE_S if stage.chance.random() < SLOWLY_SHARE else 0.0
        for what, segments in _likenesses(stage, api, version, frame):
            other = asker.told(*segments, pause_s=pause_s)
            if not _same(other, first) and asker.told(frame) == first:
                raise stage.violation(
                    f"{what}: {_words(other)} instead of {_words(first)}", Oracle.RELATION, api, version
                )
        _next_version(asker, api, version, message, first)


def _likenesses(stage: Stage, api: Api, version: int, frame: bytes) -> list[tuple[str, list[bytes]]]:
    place = stage.chance.randrange(1, len(frame))
    found = [
        ("in two segments", [frame[:place], frame[place:]]),
        ("byte by byte", [frame[n : n + 1] for n in range(6)]),
    ]
    found[1][1].append(frame[6:])
    found += [(f"with {told} client id", [_named(frame, client_id)]) for told, client_id in NAMELESS]
    if (api.key, frame[-2:]) == (DESCRIBE_CREDENTIALS, NO_USERS):
        found.append(("with null for no users", [frame[:-2] + NULL_USERS]))
    if api.is_flexible(version):
        found.append(("with an unknown tag in the header", [_with_header_tag(frame)]))
        if frame.endswith(b"\0"):
            found.append(("with an unknown tag in the body", [with_size(frame[4:-1] + TAG_SECTION)]))
    return found


def _with_header_tag(frame: bytes) -> bytes:
    return _with_header(frame, tags=(UNKNOWN_TAG,))


def _named(frame: bytes, client_id: str | None) -> bytes:
    return _with_header(frame, client_id=client_id)


def _with_header(frame: bytes, **changes: Any) -> bytes:
    header, start = decode_request_header(frame[4:])
    return with_size(encode_request_header(replace(header, **changes)) + frame[4 + start :])


def _next_version(asker: Asker, api: Api, version: int, message: object, first: bytes) -> None:
    """The same message, if the next version can say it: answered if this one is."""
    if version >= asker.stage.served[api.key][1]:
        return
    try:
        frame = encode_request(message, version + 1, NUMBER, CLIENT_ID)
    except EncodeError:
        return
    second = asker.told(frame)
    before = encode_request(message, version, NUMBER, CLIENT_ID)
    what = _parted(api, version, first, second)
    if what is not None and asker.told(before) == first:
        raise asker.stage.violation(what, Oracle.RELATION, api, version)


def _parted(api: Api, version: int, first: bytes, second: bytes) -> str | None:
    """How the answer in the next version is not the one in this."""
    if (second == CLOSED) != (first == CLOSED):
        return f"closed in version {version + (first != CLOSED)}, answered in {version + (first == CLOSED)}"
    return None if {first, second} & {CLOSED, SILENT} else difference(api, version, first, second)


def _same(one: bytes, other: bytes) -> bool:
    """But for the order of what has none: brokers list topics as their hash tables do."""
    return sorted(one) == sorted(other)


def _words(answer: bytes) -> str:
    if answer in (CLOSED, SILENT):
        return answer.decode()
    return f"{len(answer)} bytes {answer[:48].hex()}"
