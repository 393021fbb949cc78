"""Measure which malformed requests a broker accepts: `python -m highwater.fuzz.wire.oracles.tolerances TARGET`.

Sends every flaw at every field of every API, in the oldest and newest version of both encodings. Prints one line for
each flaw, API and field: how often the broker accepted it, returned an error code, closed the connection, or was
silent. `tolerated.toml` was written from the lines of Apache Kafka.
"""

import random
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from highwater.conformance.targets import open_target
from highwater.fuzz.wire.connection import Served, advertised, connect
from highwater.fuzz.wire.generate.cases import with_size
from highwater.fuzz.wire.generate.mutators import TAG_SECTIONS, VARINTS, WIDTHS, as_length, uvarint
from highwater.fuzz.wire.generate.pool import Pool, ValidRequest
from highwater.fuzz.wire.oracles.malformed import Flaw, Malformed, first_flaw
from highwater.fuzz.wire.oracles.responses import judge
from highwater.fuzz.wire.replay import prepare
from highwater.reference.client.connection import ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.constructs import Site
from highwater.reference.wire.errors import FrameSizeError
from highwater.reference.wire.registry import Api

SAMPLES: Final = 4
SENT_MAX: Final = 4
"""Frames for each flaw, field and version."""
REPLY_S: Final = 1.5
LONG: Final = b"x" * 40_000


def tolerances(
    target: Annotated[str, typer.Argument(help="The broker, as for highwater fuzz.")],
    seed: Annotated[int, typer.Option(help="Seed of the valid requests.")] = 1,
) -> None:
    """Print what a broker does with each flaw."""
    with open_target(target) as opened:
        address = opened.bootstrap.split(",")[0]
        prepare(address)
        print(f"{opened.name} {opened.version}, seed {seed}")
        for (malformed, api), outcomes in sorted(measure(address, seed).items()):
            counts = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
            print(f"{malformed.flaw.name:<16} {api}.{malformed.field}: {counts}")


def measure(address: str, seed: int) -> dict[tuple[Malformed, str], Counter[str]]:
    """Return how often each outcome occurred, by flaw and API."""
    rng, found = random.Random(seed), dict[tuple[Malformed, str], Counter[str]]()
    for api, version in _versions(advertised(address)):
        sent: Counter[Malformed] = Counter()
        pool = Pool(rng)
        for valid in (pool.draw(api, version) for _ in range(SAMPLES)):
            for body in flawed_bodies(valid):
                malformed = first_flaw(body)
                if malformed is None or sent[malformed] >= SENT_MAX:
                    continue
                sent[malformed] += 1
                found.setdefault((malformed, api.name), Counter())[_outcome(address, with_size(body))] += 1
    return found


def _versions(served: Served) -> Iterator[tuple[Api, int]]:
    for api, first, last in served:
        edge = last + 1 if api.flexible_from is None else api.flexible_from
        yield from ((api, version) for version in sorted({first, edge - 1, edge, last}) if first <= version <= last)


def flawed_bodies(valid: ValidRequest) -> Iterator[bytes]:
    """Yield the request with each change at each site; most of them are malformed."""
    body, flexible = valid.body, valid.api.is_flexible(valid.version)
    yield body + b"\0"
    yield body[:-1]
    for size in (-2, -(2**15)):
        yield body[:8] + struct.pack(">h", size) + body[10:]
    yield body[:8] + b"\0\2\xff\xfe" + body[10 + max(0, struct.unpack_from(">h", body, 8)[0]) :]
    for site in valid.sites:
        for new in _changes(valid, site, flexible=flexible):
            yield body[: site.start] + new + body[site.end :]


def _changes(valid: ValidRequest, site: Site, *, flexible: bool) -> Iterator[bytes]:
    if site.kind in ("length", "count"):
        remaining = len(valid.body) - site.end
        yield from (as_length(valid, site, value) for value in (-1, -2, -(2**31), remaining + 1, 2**24))
        if flexible:
            yield from VARINTS.values()
    elif site.kind == "string":
        for text in (b"\xff\xfe", LONG):
            yield (uvarint(len(text) + 1) if flexible else (len(text) & 0xFFFF).to_bytes(2, "big")) + text
    elif site.kind == "tag":
        yield from TAG_SECTIONS.values()
    elif site.kind == "null":
        yield from (b"\0", b"\2", b"\x80")
    elif site.kind in WIDTHS:
        width = site.end - site.start
        for value in (0, 1, 2, 3, 5, 8, 16, 33, 99, 127, -1, -2):
            yield (value % (1 << 8 * width)).to_bytes(width, "big")


def _outcome(address: str, frame: bytes) -> str:
    try:
        with connect(address) as connection:
            connection.send_bytes(frame)
            failure, codes = judge(frame, connection.receive_frame(REPLY_S))
    except ConnectionClosedError:
        return "closed"
    except ReplyTimeoutError:
        return "silent"
    except FrameSizeError:
        return "malformed response"
    if any(codes):
        return "error"
    malformed = first_flaw(frame[4:])
    is_value = malformed is not None and malformed.flaw is Flaw.ENUMERATION
    return "no element" if is_value and failure is None else "accepted"


if __name__ == "__main__":
    typer.run(tolerances)
