"""Hostile replies to a client under test: a proxy before our broker spoils some of what it answers.

`COMMAND {bootstrap}` is run again and again, each time with other spoiled replies. It may fail, but not hang beyond the
deadline, die of a signal, or take memory without measure (KAFKA-4090; librdkafka's assertions on JoinGroup metadata).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.self_test.faults import Fault
from highwater.conformance.self_test.proxy import Proxy
from highwater.conformance.targets.reference import ReferenceTarget
from highwater.errors import UsageError
from highwater.fuzz.wire.clients.hostile_replies import Hostile
from highwater.fuzz.wire.clients.process import Client, Ended
from highwater.fuzz.wire.clients.served_replies import Again, Edit, Reply, Served
from highwater.fuzz.wire.clients.state import read_client_state, write_client_state
from highwater.fuzz.wire.findings import EXPECTED, FILE, Finding, api_name, environment, new_id, write_finding
from highwater.fuzz.wire.generate.cases import NOTHING
from highwater.fuzz.wire.oracles import Broken, Oracle
from highwater.fuzz.wire.process import place_of
from highwater.fuzz.wire.shrink import fewest

SHRINK_S: Final = 60.0


@contextmanager
def served_by() -> Iterator[Proxy]:
    """A broker of our own behind a proxy that spoils nothing yet."""
    target = ReferenceTarget(1)
    try:
        proxy = Proxy(target.bootstrap, {}, Fault())
        try:
            yield proxy
        finally:
            proxy.close()
    finally:
        target.close()


def prove_sound(client: Client, proxy: Proxy) -> None:
    """It ends well if nothing is spoiled: UsageError. And what it makes at first, a topic or a group, is there then."""
    ended = client.run(proxy.address)
    if ended.broken is not None or ended.code != 0:
        why = ended.broken.message if ended.broken else f"exit code {ended.code}"
        what = f"fails without any spoiled reply ({why}): {ended.said.strip()[-200:]}"
        raise UsageError(what, where=client.command, hint="it must exit with 0 against a sound broker")


def replay_served(command: str, served: Served) -> Broken | None:
    """The same replies once more, to a client of a broker that knows nothing yet."""
    client = Client(command, served.deadline_s, served.memory_mb)
    with served_by() as proxy:
        prove_sound(client, proxy)
        proxy.fault = Again(served.replies)
        return client.run(proxy.address).broken


def minimised_served(command: str, finding: Finding, folder: Path, seconds: float) -> tuple[Path, str] | None:
    """As `highwater.fuzz.wire.minimise.minimised`, of what a client was given."""
    assert finding.served is not None
    least = least_served(command, finding.served, finding.oracle, seconds)
    if least is None:
        return None
    path = write_finding(folder, msgspec.structs.replace(finding, id=f"{finding.id}.min", served=least))
    return path, f"{_bytes(finding.served)} to {_bytes(least)} spoiled bytes"


def _bytes(served: Served) -> int:
    return sum(max(edit.removed, len(edit.inserted) // 2) for reply in served.replies for edit in reply.edits)


def least_served(command: str, served: Served, oracle: Oracle, seconds: float) -> Served | None:
    """Fewer replies with fewer edits that break the same on a broker that knows nothing yet; None if none do."""
    client, end = Client(command, served.deadline_s, served.memory_mb), time.monotonic() + seconds

    def breaks_anew(candidate: Served) -> bool:
        broken = replay_served(command, candidate)
        return broken is not None and broken.oracle is oracle

    with served_by() as proxy:
        prove_sound(client, proxy)

        def breaks(replies: list[Reply]) -> bool:
            if time.monotonic() > end:
                return False
            proxy.fault = Again(replies)
            broken = client.run(proxy.address).broken
            return broken is not None and broken.oracle is oracle

        replies = fewest(served.replies, breaks)
        for number in range(len(replies)):
            replies = _fewer_edits(replies, number, breaks)
    least = msgspec.structs.replace(served, replies=replies)
    return next((each for each in (least, served) if breaks_anew(each)), None)


def _fewer_edits(replies: list[Reply], number: int, breaks: Callable[[list[Reply]], bool]) -> list[Reply]:
    """In one of them."""

    def edited(edits: list[Edit]) -> list[Reply]:
        return [*replies[:number], msgspec.structs.replace(replies[number], edits=edits), *replies[number + 1 :]]

    return edited(fewest(replies[number].edits, lambda edits: breaks(edited(edits))))


@dataclass
class ClientSession:
    """Runs of one command until a bound is met. What is learned is written after each, for another one to resume."""

    client: Client
    folder: Path
    seed: int
    seconds: float
    runs: int
    resume: bool = False
    shrink_s: float = SHRINK_S
    findings: list[Finding] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.state = read_client_state(self.folder, self.client.command, resume=self.resume)

    def run(self) -> dict[str, Any]:
        """The object that `--json` prints. UsageError for a command without `{bootstrap}`, or that fails unspoiled."""
        before, ended = msgspec.structs.replace(self.state), ""
        with served_by() as proxy:
            prove_sound(self.client, proxy)
            started = time.monotonic()
            try:
                while self.state.runs - before.runs < self.runs and time.monotonic() - started < self.seconds:
                    hostile = proxy.fault = Hostile(f"{self.seed}:{self.state.runs}")
                    self._once(proxy, hostile)
                    self.state.runs, self.state.spoiled = self.state.runs + 1, self.state.spoiled + len(hostile.spoiled)
                    self._persist(before.seconds + time.monotonic() - started)
            except KeyboardInterrupt:
                ended = "interrupted"
            took_s = time.monotonic() - started
            self._persist(before.seconds + took_s)
        done = self.state.runs - before.runs
        return {
            "cases": done, "cases_per_second": round(done / took_s, 2), "spoiled": self.state.spoiled - before.spoiled,
            "cases_of_all_runs": self.state.runs, "seed": self.seed, "ended": ended, "exits": dict(self.exits),
            "findings": [self._row(each) for each in self.findings],
        }  # fmt: skip

    def _persist(self, seconds: float) -> None:
        self.state.seconds = round(seconds, 1)
        write_client_state(self.folder, self.state)

    def _row(self, finding: Finding) -> dict[str, Any]:
        return {
            "id": finding.id, "oracle": finding.oracle, "api": finding.api, "version": finding.version,
            "message": finding.message, "place": finding.place, "reproduced": finding.reproduced,
            "path": str(self.folder / finding.id / FILE),
        }  # fmt: skip

    def _once(self, proxy: Proxy, hostile: Hostile) -> None:
        ended = self.client.run(proxy.address)
        word = ended.broken.message if ended.broken else str(ended.code)
        self.exits[word] += 1
        self.state.exits[word] = self.state.exits.get(word, 0) + 1
        if ended.broken is None:
            return
        oracle, place = ended.broken.oracle, place_of(ended.said) if ended.broken.oracle is Oracle.ALIVE else ""
        if not self._is_new(oracle, place, hostile.spoiled):
            return
        served = Served(replies=hostile.spoiled, deadline_s=self.client.deadline_s, memory_mb=self.client.memory_mb)
        try:
            least = least_served(self.client.command, served, oracle, self.shrink_s)
        except KeyboardInterrupt:  # it is known from now on, so that it must be told
            self._write(ended, ended.broken, place, served, reproduced=False)
            raise
        if (
            least is not None
            and least.replies[-1:] != served.replies[-1:]
            and not self._is_new(oracle, place, least.replies)
        ):
            return
        self._write(ended, ended.broken, place, least or served, reproduced=least is not None)

    def _write(self, ended: Ended, broken: Broken, place: str, served: Served, *, reproduced: bool) -> None:
        last = served.replies[-1:]
        api, version = (api_name(last[0].key), last[0].version) if last else ("none", 0)
        finding = Finding(
            id=new_id(self.folder, broken.oracle, api, version), oracle=broken.oracle, api=api, version=version,
            mutation=last[0].how if last else NOTHING, field="", place=place, message=broken.message,
            expected=EXPECTED[broken.oracle], target=self.client.command, seed=self.seed, case=self.state.runs,
            reproduced=reproduced, steps=[], log=ended.said, environment=environment("client"), served=served,
        )  # fmt: skip
        write_finding(self.folder, finding)
        self.findings.append(finding)
        self.state.findings.append(self._row(finding))

    def _is_new(self, oracle: Oracle, place: str, replies: list[Reply]) -> bool:
        """A crash is told by its place, anything else by the last reply that was spoiled."""
        last = [f"{each.key} {each.how}" for each in replies[-1:]]
        signature = (oracle.value, place or "".join(last))
        is_new = signature not in self.state.seen
        self.state.seen.add(signature)
        return is_new
