"""Fuzz a client: a proxy in front of our broker mutates some of its replies.

`COMMAND {bootstrap}` is run repeatedly, each time with other mutated replies. It may fail, but not exceed the
deadline, die of a signal, or use excessive memory (KAFKA-4090; librdkafka's assertions on JoinGroup metadata).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.self_test.faults import PlantedDefect
from highwater.conformance.targets.reference import ReferenceTarget
from highwater.errors import UsageError
from highwater.fuzz.wire.clients.hostile_replies import HostileReplies
from highwater.fuzz.wire.clients.process import ClientExit, ClientProcess
from highwater.fuzz.wire.clients.reply_proxy import ReplyProxy
from highwater.fuzz.wire.clients.served_replies import Edit, RepeatedReplies, ServedReplies, ServedReply
from highwater.fuzz.wire.clients.state import read_client_state, write_client_state
from highwater.fuzz.wire.examination.shrink import minimise_list
from highwater.fuzz.wire.findings import (
    EXPECTED,
    FILE,
    Finding,
    api_name,
    environment,
    make_folder,
    new_id,
    write_finding,
)
from highwater.fuzz.wire.generate.cases import NO_MUTATION
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.process import place_of
from highwater.fuzz.wire.verdict import INTERRUPTED

SHRINK_S: Final = 60.0


@contextmanager
def broker_behind_proxy() -> Iterator[ReplyProxy]:
    """Start our broker behind a proxy that mutates nothing yet."""
    target = ReferenceTarget(1)
    try:
        proxy = ReplyProxy(target.bootstrap, PlantedDefect())
        try:
            yield proxy
        finally:
            proxy.close()
    finally:
        target.close()


def check_valid_run(client: ClientProcess, proxy: ReplyProxy) -> None:
    """Raise UsageError if the client fails with valid replies. The run also creates its topic and group."""
    ended = client.run(proxy.address)
    if ended.failure is not None or ended.code != 0:
        why = ended.failure.message if ended.failure else f"exit code {ended.code}"
        what = f"fails with valid replies ({why}): {ended.output.strip()[-200:]}"
        raise UsageError(what, where=client.command, hint="it must exit with code 0 if all replies are valid")


def replay_served(command: str, served: ServedReplies) -> Failure | None:
    """Serve the same mutated replies to the client, from a freshly started broker."""
    client = ClientProcess(command, served.deadline_s, served.memory_mb)
    with broker_behind_proxy() as proxy:
        check_valid_run(client, proxy)
        proxy.fault = RepeatedReplies(served.replies)
        return client.run(proxy.address).failure


def minimise_served(command: str, finding: Finding, folder: Path, seconds: float) -> tuple[Path, str] | None:
    """Minimise a finding of a client, as `examination.minimise.minimise_finding` does for a target."""
    assert finding.served is not None
    smallest = minimise_replies(command, finding.served, finding.oracle, seconds)
    if smallest is None:
        return None
    path = write_finding(folder, msgspec.structs.replace(finding, id=f"{finding.id}.min", served=smallest))
    return path, f"{_bytes(finding.served)} to {_bytes(smallest)} mutated bytes"


def _bytes(served: ServedReplies) -> int:
    return sum(max(edit.removed, len(edit.inserted) // 2) for reply in served.replies for edit in reply.edits)


def minimise_replies(command: str, served: ServedReplies, oracle: Oracle, seconds: float) -> ServedReplies | None:
    """Return fewer replies with fewer edits that fail in the same way on a fresh broker; None if none do."""
    client, end = ClientProcess(command, served.deadline_s, served.memory_mb), time.monotonic() + seconds

    def breaks_after_restart(candidate: ServedReplies) -> bool:
        failure = replay_served(command, candidate)
        return failure is not None and failure.oracle is oracle

    with broker_behind_proxy() as proxy:
        check_valid_run(client, proxy)

        def breaks(replies: list[ServedReply]) -> bool:
            if time.monotonic() > end:
                return False
            proxy.fault = RepeatedReplies(replies)
            failure = client.run(proxy.address).failure
            return failure is not None and failure.oracle is oracle

        replies = minimise_list(served.replies, breaks)
        for number in range(len(replies)):
            replies = _fewer_edits(replies, number, breaks)
    smallest = msgspec.structs.replace(served, replies=replies)
    return next(
        (candidate_replies for candidate_replies in (smallest, served) if breaks_after_restart(candidate_replies)), None
    )


def _fewer_edits(
    replies: list[ServedReply], number: int, breaks: Callable[[list[ServedReply]], bool]
) -> list[ServedReply]:
    """Minimise the edits of one reply."""

    def edited(edits: list[Edit]) -> list[ServedReply]:
        return [*replies[:number], msgspec.structs.replace(replies[number], edits=edits), *replies[number + 1 :]]

    return edited(minimise_list(replies[number].edits, lambda edits: breaks(edited(edits))))


@dataclass
class ClientSession:
    """Runs of one command until a bound is reached. The state is written after each run, for `--resume`."""

    client: ClientProcess
    folder: Path
    seed: int
    seconds: float
    runs: int
    resume: bool = False
    shrink_s: float = SHRINK_S
    findings: list[Finding] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        make_folder(self.folder)
        self.state = read_client_state(self.folder, self.client.command, resume=self.resume)

    def run(self) -> dict[str, Any]:
        """Return the object that `--json` prints; UsageError if the command is wrong, or fails with valid replies."""
        before, ended = msgspec.structs.replace(self.state), ""
        with broker_behind_proxy() as proxy:
            check_valid_run(self.client, proxy)
            started = time.monotonic()
            try:
                while self.state.runs - before.runs < self.runs and time.monotonic() - started < self.seconds:
                    hostile = proxy.fault = HostileReplies(f"{self.seed}:{self.state.runs}")
                    self._once(proxy, hostile)
                    self.state.runs, self.state.spoiled = self.state.runs + 1, self.state.spoiled + len(hostile.mutated)
                    self._persist(before.seconds + time.monotonic() - started)
            except KeyboardInterrupt:
                ended = INTERRUPTED
            took_s = time.monotonic() - started
            self._persist(before.seconds + took_s)
        done = self.state.runs - before.runs
        return {
            "cases": done, "cases_per_second": round(done / took_s, 2), "spoiled": self.state.spoiled - before.spoiled,
            "cases_of_all_runs": self.state.runs, "seed": self.seed, "ended": ended, "exits": dict(self.exits),
            "findings": [self._row(finding) for finding in self.findings],
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

    def _once(self, proxy: ReplyProxy, hostile: HostileReplies) -> None:
        ended = self.client.run(proxy.address)
        outcome = ended.failure.message if ended.failure else str(ended.code)
        self.exits[outcome] += 1
        self.state.exits[outcome] = self.state.exits.get(outcome, 0) + 1
        if ended.failure is None:
            return
        oracle, place = ended.failure.oracle, place_of(ended.output) if ended.failure.oracle is Oracle.ALIVE else ""
        if not self._is_new(oracle, place, hostile.mutated):
            return
        served = ServedReplies(
            replies=hostile.mutated, deadline_s=self.client.deadline_s, memory_mb=self.client.memory_mb
        )
        try:
            smallest = minimise_replies(self.client.command, served, oracle, self.shrink_s)
        except KeyboardInterrupt:  # its signature is recorded, so a later run would not report it
            self._write(ended, ended.failure, place, served, reproduced=False)
            raise
        if (
            smallest is not None
            and smallest.replies[-1:] != served.replies[-1:]
            and not self._is_new(oracle, place, smallest.replies)
        ):
            return
        self._write(ended, ended.failure, place, smallest or served, reproduced=smallest is not None)

    def _write(
        self, ended: ClientExit, failure: Failure, place: str, served: ServedReplies, *, reproduced: bool
    ) -> None:
        last = served.replies[-1:]
        api, version = (api_name(last[0].key), last[0].version) if last else ("none", 0)
        finding = Finding(
            id=new_id(self.folder, failure.oracle, api, version), oracle=failure.oracle, api=api, version=version,
            mutation=last[0].how if last else NO_MUTATION, field="", place=place, message=failure.message,
            expected=EXPECTED[failure.oracle], target=self.client.command, seed=self.seed, case=self.state.runs,
            reproduced=reproduced, steps=[], log=ended.output, environment=environment("client"), served=served,
        )  # fmt: skip
        write_finding(self.folder, finding)
        self.findings.append(finding)
        self.state.findings.append(self._row(finding))

    def _is_new(self, oracle: Oracle, place: str, replies: list[ServedReply]) -> bool:
        """Return True for a new failure: a crash is identified by its place, others by the last mutated reply."""
        last = [f"{reply.key} {reply.how}" for reply in replies[-1:]]
        signature = (oracle.value, place or "".join(last))
        is_new = signature not in self.state.seen
        self.state.seen.add(signature)
        return is_new
