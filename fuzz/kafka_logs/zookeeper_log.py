"""Read the transaction log of a ZooKeeper server: `version-2/log.*` in its dataLogDir, by default its dataDir.

ZooKeeper writes every change to this log before it answers, in the order of zxids, and numbers also the requests that
fail. So the log of one server has the order of all changes of the cluster's metadata, as `__cluster_metadata` has in
KRaft. Each file is named for its first zxid and has zeroes at its end, which were allocated ahead (FileTxnLog).

The records are in jute, ZooKeeper's own format: big-endian numbers, strings and buffers after their length (-1: null).
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import construct

from highwater.errors import UsageError
from highwater.fuzz.kafka_logs.folders import Seen

VERSION_FOLDER: Final = "version-2"
ZOOKEEPER_LOG: Final = "ZooKeeper's log (zxid)"
"""The name of the log where a message gives an offset, which is a zxid."""
COUNTER: Final = 0xFFFF_FFFF
"""The part of a zxid that counts; the part above it is the epoch of an ensemble's leader, in which it starts again."""
MULTI: Final = 14
CREATE, SET_DATA, DELETE, CLOSE_SESSION = "create", "setData", "delete", "closeSession"

HEADER_SIZE: Final = 16
FILE_HEADER: Final = construct.Struct("magic" / construct.Const(b"ZKLG"), "version" / construct.Int32sb)
FRAME: Final = construct.Struct(
    "checksum" / construct.Int64ub,
    "length" / construct.Int32sb,
    "entry" / construct.Bytes(construct.this.length),
    "end" / construct.Const(b"B"),
)
TRANSACTION: Final = construct.Struct(
    "session" / construct.Int64ub,
    "cxid" / construct.Int32sb,
    "zxid" / construct.Int64ub,
    "time_ms" / construct.Int64sb,
    "type" / construct.Int32sb,
    "body" / construct.GreedyBytes,
)
BUFFER: Final = construct.FocusedSeq(
    "data", "length" / construct.Int32sb, "data" / construct.Bytes(lambda this: max(this.length, 0))
)
TEXT: Final = construct.ExprAdapter(BUFFER, lambda data, _: data.decode(), lambda text, _: text.encode())
ACL: Final = construct.PrefixedArray(construct.Int32ub, construct.Sequence(construct.Int32sb, TEXT, TEXT))
CREATED: Final = construct.Struct("path" / TEXT, "data" / BUFFER, "acl" / ACL, "ephemeral" / construct.Flag)
KEPT: Final = construct.Struct("path" / TEXT, "data" / BUFFER)
CHANGED: Final = construct.Struct("path" / TEXT, "data" / BUFFER, "version" / construct.Int32sb)
NAMED: Final = construct.Struct("path" / TEXT)
NOTHING: Final = construct.Struct()
KINDS: Final[dict[int, tuple[str, Any]]] = {
    -11: (CLOSE_SESSION, NOTHING),
    -10: ("createSession", NOTHING),
    -1: ("error", NOTHING),
    1: (CREATE, CREATED),
    2: (DELETE, NAMED),
    5: (SET_DATA, CHANGED),
    7: ("setACL", NAMED),
    13: ("check", NAMED),
    15: (CREATE, CREATED),
    16: ("reconfig", NOTHING),
    19: (CREATE, KEPT),
    20: (DELETE, NAMED),
    21: (CREATE, KEPT),
}
"""The name of each type of transaction and the fields that are read; later fields follow them (ZooDefs.OpCode)."""
KNOWN: Final = frozenset(kind for kind, _ in KINDS.values())
PARTS: Final = construct.PrefixedArray(construct.Int32ub, construct.Struct("type" / construct.Int32sb, "body" / BUFFER))


@dataclass(frozen=True, slots=True)
class ZooKeeperOperation:
    """One change of a transaction; `version` is that of the znode after a setData."""

    kind: str
    path: str = ""
    data: bytes = b""
    version: int = 0
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed request. `cxid` is the session's own number of it, 0 if the server itself expired the session."""

    zxid: int
    session: int
    cxid: int
    operations: tuple[ZooKeeperOperation, ...]


@dataclass(frozen=True, slots=True)
class ZooKeeperLog:
    """The transactions by zxid, up to the first that is missing; `cut` if one is, or if the end is damaged."""

    transactions: tuple[Transaction, ...]
    cut: bool = False


def is_zookeeper(path: Path) -> bool:
    """Return whether a folder is ZooKeeper's dataLogDir or dataDir."""
    return (path / VERSION_FOLDER).is_dir()


def read_zookeeper(path: Path, seen: Seen) -> ZooKeeperLog:
    """Return the transactions of all log files of a server, and count what is missing.

    A damaged end is harmless if the next file goes on with the next zxid: the server was killed while it wrote, and
    removed the end when it started again.

    Raises UsageError for a file that is no transaction log.
    """
    transactions: list[Transaction] = []
    damage = ""
    for file in sorted((path / VERSION_FOLDER).glob("log.*"), key=_first_zxid):
        seen.read["files of ZooKeeper's log"] += 1
        damage = ""
        try:
            transactions += _read_file(file)
        except _DamagedError as error:
            transactions += error.before
            damage = str(error)
    seen.read["ZooKeeper transactions"] += len(transactions)
    if damage:
        seen.skipped[f"end of ZooKeeper's log, from {damage} on"] += 1
    for transaction in transactions:
        unknown = [operation.kind for operation in transaction.operations if operation.kind not in KNOWN]
        seen.skipped.update(f"ZooKeeper transaction of {kind}" for kind in unknown)
    if not transactions:
        seen.skipped["ZooKeeper's log, which has no transaction"] += 1
    elif transactions[0].zxid & COUNTER > 1:
        seen.skipped["beginning of ZooKeeper's log, which is only in a snapshot"] += 1
    gap = next((at for at, pair in enumerate(pairwise(transactions), 1) if not _follows(*pair)), None)
    if gap is not None:
        seen.skipped["ZooKeeper's log, from transactions on that are missing"] += 1
    return ZooKeeperLog(tuple(transactions[:gap]), bool(damage) or gap is not None)


def _first_zxid(file: Path) -> int:
    try:
        return int(file.suffix[1:], 16)
    except ValueError:
        raise UsageError("the name of a transaction log ends with its first zxid", where=str(file)) from None


def _follows(before: Transaction, after: Transaction) -> bool:
    """Return whether no zxid is between two transactions; an ensemble's new leader begins to count again."""
    return after.zxid == before.zxid + 1 or after.zxid >> 32 > before.zxid >> 32


class _DamagedError(Exception):
    """A log file is damaged after the transactions `before`."""

    def __init__(self, reason: str, before: list[Transaction]) -> None:
        super().__init__(reason)
        self.before = before


def _read_file(file: Path) -> list[Transaction]:
    data = file.read_bytes()
    end = max(len(data.rstrip(b"\0")), HEADER_SIZE)  # every entry ends with a byte that is no zero
    stream = BytesIO(data[:end])
    found: list[Transaction] = []
    try:
        FILE_HEADER.parse_stream(stream)
        stream.seek(HEADER_SIZE)
        while stream.tell() < end:
            frame = FRAME.parse_stream(stream)
            if zlib.adler32(frame.entry) != frame.checksum:
                raise _DamagedError("a transaction with a wrong checksum", found)
            found.append(_decode(frame.entry))
    except construct.ConstError as error:
        if not found and stream.tell() < HEADER_SIZE:
            raise UsageError("no transaction log of ZooKeeper", where=str(file)) from error
        raise _DamagedError("a damaged transaction", found) from error
    except (construct.ConstructError, UnicodeDecodeError) as error:
        raise _DamagedError("an incomplete transaction", found) from error
    return found


def _decode(entry: bytes) -> Transaction:
    header = TRANSACTION.parse(entry)
    return Transaction(header.zxid, header.session, header.cxid, tuple(_operations(header.type, header.body)))


def _operations(code: int, body: bytes) -> Iterator[ZooKeeperOperation]:
    if code == MULTI:
        for part in PARTS.parse(body):
            yield from _operations(part.type, part.body)
        return
    kind, layout = KINDS.get(code, (f"unknown type {code}", NOTHING))
    fields = layout.parse(body)
    yield ZooKeeperOperation(
        kind, fields.get("path", ""), fields.get("data", b""), fields.get("version", 0),
        bool(fields.get("ephemeral", False)),
    )  # fmt: skip
