"""Hostile replies to a client under test: a proxy before our broker spoils some of what it answers.

`COMMAND {bootstrap}` is run again and again, each time with other spoiled replies. It may fail, but not hang beyond the
deadline, die of a signal, or take memory without measure (KAFKA-4090; librdkafka's assertions on JoinGroup metadata).
"""

import random
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conformance.self_test.proxy import Proxy
from conformance.self_test.spoiling import Asked, Fault
from conformance.targets.reference import ReferenceTarget
from fuzz.wire.findings import EXPECTED, Finding, api_name, environment, new_id, write_finding
from fuzz.wire.mutators import LENGTHS, uvarint
from fuzz.wire.oracles import Oracle
from fuzz.wire.process import MEGABYTE, Process, place_of
from reference.wire.described import sites
from reference.wire.errors import WireError
from reference.wire.framing import decode_response_header, response_header_version
from spec.formats.verdict import UsageError

SPOILED_SHARE: Final = 0.2
SOUND_AT_FIRST: Final = 3
"""Replies of a run that may pass, so that not every run ends in its first exchange."""
TLS_ALERT: Final = bytes.fromhex("15030300020246")
POLL_S: Final = 0.02
SHELL_SIGNAL: Final = 128
SAID_MAX: Final = 4_000


class Hostile(Fault):
    """Spoils replies by chance; `spoiled` says which and how."""

    def __init__(self) -> None:
        super().__init__()
        self.begin("")

    def begin(self, seed: str) -> None:
        self._chance, self._passed, self.spoiled = random.Random(seed), 0, list[tuple[Asked, str, bytes]]()
        self._spare = self._chance.randrange(SOUND_AT_FIRST + 1)

    def spoiled_reply(self, frame: bytes, asked: Asked) -> bytes:
        self._passed += 1
        if self._passed <= self._spare or self._chance.random() > SPOILED_SHARE:
            return frame
        how = self._chance.choice(list(SPOILERS))
        spoiled = SPOILERS[how](self._chance, frame, asked)
        self.spoiled.append((asked, how, spoiled))
        return spoiled


def _flip(chance: random.Random, frame: bytes, asked: Asked) -> bytes:
    spoiled = bytearray(frame)
    for _ in range(chance.choice((1, 4))):
        spoiled[chance.randrange(8, len(spoiled)) if len(spoiled) > 8 else 4] ^= 1 << chance.randrange(8)
    return bytes(spoiled)


def _length(chance: random.Random, frame: bytes, asked: Asked) -> bytes:
    """A length or count in the body that is not the truth."""
    assert asked.api is not None
    body = frame[4:]
    try:
        _, start = decode_response_header(body, response_header_version(asked.api, asked.version))
        found = [each for each in sites(asked.api.response, asked.version, body[start:]) if each.kind in LENGTH_KINDS]
    except WireError:
        found = []
    if not found:
        return _flip(chance, frame, asked)
    site, value = chance.choice(found), chance.choice(LENGTHS)
    width = site.end - site.start
    flexible = asked.api.is_flexible(asked.version)
    new = uvarint((value + 1) & 0xFFFFFFFF) if flexible else (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
    spoiled = body[: start + site.start] + new + body[start + site.end :]
    return len(spoiled).to_bytes(4, "big") + spoiled


def _cut(chance: random.Random, frame: bytes, asked: Asked) -> bytes:
    shorter = frame[4 : chance.randrange(8, max(len(frame), 9))]
    return len(shorter).to_bytes(4, "big") + shorter


def _size(chance: random.Random, frame: bytes, asked: Asked) -> bytes:
    return (chance.choice((-1, 0, 3, 2**31 - 1, 2**28)) & 0xFFFFFFFF).to_bytes(4, "big") + frame[4:]


def _correlation(chance: random.Random, frame: bytes, asked: Asked) -> bytes:
    return frame[:4] + chance.randbytes(4) + frame[8:]


def _tls(chance: random.Random, frame: bytes, asked: Asked) -> bytes:
    return TLS_ALERT


LENGTH_KINDS: Final = frozenset({"length", "count"})
SPOILERS: Final[dict[str, Callable[[random.Random, bytes, Asked], bytes]]] = {
    "flip": _flip, "length": _length, "cut": _cut, "size": _size, "correlation": _correlation, "tls alert": _tls,
}  # fmt: skip


@dataclass
class ClientSession:
    """Runs of one command until a bound is met."""

    command: str
    folder: Path
    seed: int
    seconds: float
    runs: int
    deadline_s: float
    memory_mb: int
    findings: list[Finding] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)
    _seen: set[tuple[str, ...]] = field(default_factory=set)

    def run(self) -> dict[str, Any]:
        """The object that `--json` prints. UsageError for a command without `{bootstrap}`, or that fails unspoiled."""
        if "{bootstrap}" not in self.command:
            raise UsageError("does not say where the brokers are", where="--client", mend="put {bootstrap} into it")
        hostile, target = Hostile(), ReferenceTarget(1)
        proxy = Proxy(target.bootstrap, {}, Fault())
        done, spoiled = 0, 0
        try:
            self._prove_sound(proxy)
            proxy.fault = hostile
            started = time.monotonic()
            while done < self.runs and time.monotonic() - started < self.seconds:
                hostile.begin(f"{self.seed}:{done}")
                self._once(proxy, hostile, done)
                done, spoiled = done + 1, spoiled + len(hostile.spoiled)
        finally:
            proxy.close()
            target.close()
        return {
            "cases": done, "cases_per_second": round(done / (time.monotonic() - started), 2), "spoiled": spoiled,
            "seed": self.seed, "exits": dict(self.exits),
            "findings": [
                {"id": each.id, "oracle": each.oracle, "api": each.api, "version": each.version,
                 "message": each.message, "place": each.place, "path": str(self.folder / each.id / "finding.json")}
                for each in self.findings
            ],
        }  # fmt: skip

    def _prove_sound(self, proxy: Proxy) -> None:
        code, _, said, broken = self._watch(proxy.address)
        if broken or code != 0:
            what = f"fails without any spoiled reply ({broken or f'exit code {code}'}): {said.strip()[-200:]}"
            raise UsageError(what, where=self.command, mend="it must exit with 0 against a sound broker")

    def _once(self, proxy: Proxy, hostile: Hostile, number: int) -> None:
        code, oracle, said, broken = self._watch(proxy.address)
        self.exits[broken or str(code)] += 1
        if oracle is None:
            return
        asked, how, _ = hostile.spoiled[-1] if hostile.spoiled else (Asked(), "none", b"")
        api = api_name(asked.api.key) if asked.api else "none"
        place = place_of(said) if oracle is Oracle.ALIVE else ""
        if (signature := (oracle.value, api, place)) in self._seen:
            return
        self._seen.add(signature)
        finding = Finding(
            id=new_id(self.folder, oracle, api, asked.version), oracle=oracle, api=api, version=asked.version,
            mutation=how, field="", place=place, message=broken, expected=EXPECTED[oracle], target=self.command,
            seed=self.seed, case=number, reproduced=self._again(proxy, hostile, number, oracle), steps=[],
            log=said[-SAID_MAX:], environment=environment("client"),
            said=[f"{each.api.name if each.api else '?'} v{each.version} {what}: {frame[:400].hex()}"
                  for each, what, frame in hostile.spoiled],
        )  # fmt: skip
        write_finding(self.folder, finding)
        self.findings.append(finding)

    def _again(self, proxy: Proxy, hostile: Hostile, number: int, oracle: Oracle) -> bool:
        """The same choices by chance once more; a client with threads of its own may ask in another order."""
        hostile.begin(f"{self.seed}:{number}")
        return self._watch(proxy.address)[1] is oracle

    def _watch(self, bootstrap: str) -> tuple[int, Oracle | None, str, str]:
        """Exit code, the oracle that broke, what it said, and how it broke."""
        words = [word.replace("{bootstrap}", bootstrap) for word in shlex.split(self.command)]
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"cannot be run ({error.strerror})", where=words[0], mend="give a command line") from error
        process, end, peak = Process(child.pid, None), time.monotonic() + self.deadline_s, 0
        oracle: Oracle | None = None
        broken = ""
        with child:
            while child.poll() is None and oracle is None:
                peak = max(peak, process.memory()[1])
                if peak > self.memory_mb * MEGABYTE:
                    oracle, broken = Oracle.MEMORY, f"takes {peak // MEGABYTE} MB, {self.memory_mb} MB are allowed"
                elif time.monotonic() > end:
                    oracle, broken = Oracle.DEADLINE, f"has not ended after {self.deadline_s:g} s"
                time.sleep(POLL_S)
            if child.poll() is None:
                process.kill()
            assert child.stdout is not None
            said = child.stdout.read().decode(errors="replace")
        code = child.returncode
        if oracle is None and (code < 0 or code > SHELL_SIGNAL):
            oracle, broken = Oracle.ALIVE, f"died of signal {-code if code < 0 else code - SHELL_SIGNAL}"
        return code, oracle, said, broken
