"""The fuzzing loop: generate, mutate, send, judge; save what broke and go on."""

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.wire.generators import CLIENT_ID, HARMFUL, generate
from fuzz.wire.mutators import MUTATORS
from fuzz.wire.oracles import Line, Oracle, Outcome, is_alive, run_case
from fuzz.wire.replay import Finding, write_finding
from reference.wire.errors import EncodeError, WireError
from reference.wire.framing import decode_request_header, decode_response, encode_request
from reference.wire.messages.api_versions import ApiVersionsRequest
from reference.wire.registry import APIS, Api
from spec.formats.verdict import UsageError

SOUND_SHARE = 0.3  # sound requests keep the target in interesting states
CHECK_EVERY = 25
REMEMBERED = 30
MAX_FINDINGS = 50


@dataclass(slots=True)
class Session:
    """One run against one address. `restart` brings a dead target back; without it the run ends there."""

    address: str
    folder: Path
    seed: int
    restart: Callable[[], str] | None = None
    cases: int = 0
    seconds: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)
    _started: float = 0.0
    _seen: set[tuple[str, str, int]] = field(default_factory=set)
    _recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def run(self, seconds: float, on_case: Callable[[int, int], None] = lambda cases, findings: None) -> dict[str, Any]:
        """Until the time is over, the target is dead for good, or Ctrl-C; the object that `--json` prints."""
        dead = is_alive(self.address)
        if dead is not None:
            raise UsageError(f"the target {dead}", where=self.address, mend="is it a Kafka broker, and running?")
        chance = random.Random(self.seed)
        served = advertised(self.address)
        line = Line(self.address)
        self._started = time.monotonic()
        try:
            while self.elapsed < seconds and len(self.findings) < MAX_FINDINGS:
                if not self._case(chance, served, line):
                    break
                on_case(self.cases, len(self.findings))
        except KeyboardInterrupt:
            pass
        finally:
            line.close()
            self.seconds = self.elapsed
        return self.summary()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def _case(self, chance: random.Random, served: list[tuple[Api, int, int]], line: Line) -> bool:
        """One frame. False when the target is gone and cannot be brought back."""
        api, first, last = chance.choice(served)
        version = chance.randint(first, last)
        mutation, frame = self._frame(chance, api, version)
        self.cases += 1
        self._recent.append(frame)
        try:
            outcome = run_case(line, frame)
        except OSError as error:
            outcome = Outcome(False, Oracle.ALIVE, f"the target refuses connections ({error})")
        if outcome.broken is None and self.cases % CHECK_EVERY == 0:
            dead = is_alive(self.address)
            if dead is not None:
                outcome = Outcome(False, Oracle.ALIVE, f"the target {dead}")
        if outcome.broken is not None:
            self._save(outcome, api, version, mutation, frame)
        if outcome.broken is Oracle.ALIVE:
            line.close()
            return self._revive(line)
        return True

    def _revive(self, line: Line) -> bool:
        if self.restart is None:
            return is_alive(self.address) is None
        self.address = self.restart()
        line.move_to(self.address)
        return True

    def _frame(self, chance: random.Random, api: Api, version: int) -> tuple[str, bytes]:
        while True:
            try:
                sound = encode_request(generate(chance, api, version), version, self.cases, CLIENT_ID)
                break
            except EncodeError:
                continue  # a value that this version cannot carry
        if chance.random() < SOUND_SHARE:
            return "none", sound
        name = chance.choice(list(MUTATORS))
        _, header = decode_request_header(sound[4:])
        return name, MUTATORS[name](chance, sound[4:], header, api, version)

    def _save(self, outcome: Outcome, api: Api, version: int, mutation: str, frame: bytes) -> None:
        assert outcome.broken is not None
        kind = (outcome.broken.value, api.name, version)
        if kind in self._seen:
            return
        self._seen.add(kind)
        # Who died may have died of an earlier frame: keep them all; a wrong answer is of its own frame.
        frames = list(self._recent) if outcome.broken is Oracle.ALIVE else [frame]
        finding = Finding(
            id=f"{outcome.broken}-{api.name}-v{version}-{self.cases}", oracle=outcome.broken, api=api.name,
            version=version, mutation=mutation, message=outcome.message, seed=self.seed, case=self.cases,
            frames=[each.hex() for each in frames],
        )  # fmt: skip
        path = write_finding(self.folder, finding)
        self.findings.append(
            {"id": finding.id, "oracle": finding.oracle, "api": api.name, "version": version,
             "message": outcome.message, "path": str(path)}
        )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        rate = round(self.cases / self.seconds, 1) if self.seconds else 0.0
        return {"cases": self.cases, "cases_per_second": rate, "seed": self.seed, "findings": self.findings}


def advertised(address: str) -> list[tuple[Api, int, int]]:
    """What the target says it speaks, as far as our table knows it, less what would harm it."""
    line = Line(address)
    frames = line.exchange(encode_request(ApiVersionsRequest(), 0, 1, CLIENT_ID), 3.0)
    line.close()
    if not frames:
        raise UsageError("the target does not answer ApiVersions", where=address)
    try:
        _, reply = decode_response(APIS[18], 0, frames[0])
    except WireError as error:
        raise UsageError(f"ApiVersions does not decode: {error}", where=address) from error
    found = []
    for told in reply.api_keys:
        api = APIS.get(told.api_key)
        if api is not None and told.api_key not in HARMFUL:
            first, last = max(told.min_version, api.min_version), min(told.max_version, api.max_version)
            if first <= last:
                found.append((api, first, last))
    return found
