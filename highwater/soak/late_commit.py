"""Count how often a late commit ends the wrong transaction on Apache Kafka: `python -m highwater.soak.late_commit`.

The network keeps back a request to commit. The client has sent it again over a new connection, and has begun the next
transaction, when the first copy arrives. Up to transaction version 1 no request names its transaction, and the copy
commits what the next transaction has written so far (KAFKA-17754); from version 2 each transaction has an epoch of its
own (KIP-890). The client is Apache Kafka's own, `examples/clients/LateCommit.java`, the same for each release.
"""

import argparse
import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from highwater import examples, fuzz
from highwater.conformance.targets.apache_kafka import ApacheKafka
from highwater.errors import ExitCode, Verdict
from highwater.fuzz.proxy.run import FaultProxy
from highwater.fuzz.schedule import read_schedule
from highwater.releases import fetch_release
from highwater.reports.audit import audit
from highwater.reports.recorder.clients import FOLDER, HISTORY, UserClients
from highwater.temporary import temporary_folder
from highwater.toolchain import java

SCHEDULE: Final = Path(fuzz.__path__[0]) / "schedules" / "late_commit.json"
PROGRAM: Final = Path(examples.__path__[0]) / "clients" / "LateCommit.java"
CLIENT_RELEASE: Final = "streams-4.3.1"
FLAGS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
ABORTED_READ: Final = "aborted-read"
SHOWN: Final = 0.9
"""The share of runs on the older release that must show the anomaly."""


def client_command(run: int) -> str:
    """Return the command of the client; each run has topics and a transactional id of its own."""
    jars = f"{fetch_release(CLIENT_RELEASE)}/*"
    return shlex.join([str(java().executable), *FLAGS, "-cp", jars, str(PROGRAM), str(run)])


@dataclass(frozen=True, slots=True)
class Run:
    """What a run showed: the verdict on its history, the violated rules, and the answers to late requests."""

    verdict: Verdict
    anomalies: frozenset[str]
    late: tuple[str, ...]

    @property
    def is_torn(self) -> bool:
        """Return whether a reader received a record of an aborted transaction."""
        return ABORTED_READ in self.anomalies

    @property
    def is_clean(self) -> bool:
        """Return whether the late commit reached the broker, and the audit found that no promise was broken."""
        return self.verdict is Verdict.VALID and len(self.late) == 1 and ": answered " in self.late[0]

    def __str__(self) -> str:
        return f"{self.verdict} {' '.join(sorted(self.anomalies))}; {'; '.join(self.late) or 'no late commit'}"


def one_run(bootstrap: str, run: int, folder: Path) -> Run:
    """Run the client once, and audit what it saw."""
    (fault,) = read_schedule(SCHEDULE).faults
    with FaultProxy(bootstrap, [str(fault.option("line"))]) as proxy:
        with UserClients(client_command(run), proxy.bootstrap, folder) as clients:
            clients.wait()
        assert clients.failure is None, clients.failure
        late = tuple(proxy.late)
    found = audit(folder / FOLDER / HISTORY)
    return Run(found.verdict, frozenset(finding.name for finding in found.findings), late)


def runs_on(version: str, runs: int) -> list[Run]:
    """Run the client on a release so many times; print each run."""
    done: list[Run] = []
    with closing(ApacheKafka(version, 1, settings={"default.replication.factor": 1})) as cluster:
        for number in range(1, runs + 1):
            with temporary_folder("late-commit-") as folder:
                done.append(one_run(cluster.bootstrap, number, folder))
            print(f"{version} run {number}: {done[-1]}", flush=True)
    return done


def verdict_on(older: Sequence[Run], newer: Sequence[Run]) -> ExitCode:
    """Return VIOLATED if the older release shows the anomaly in too few runs, or the newer one in any.

    UNDECIDED if there is no run of one of them, or if a run of the newer one proves nothing.
    """
    if sum(run.is_torn for run in older) < SHOWN * len(older) or any(run.is_torn for run in newer):
        return ExitCode.VIOLATED
    return ExitCode.HELD if older and newer and all(run.is_clean for run in newer) else ExitCode.UNDECIDED


def main(arguments: Sequence[str] | None = None) -> ExitCode:
    """Run both releases, and print in how many runs each shows the anomaly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="runs on the older release")
    parser.add_argument("--control", type=int, default=50, help="runs on the newer release")
    parser.add_argument("--older", default="3.9.1")
    parser.add_argument("--newer", default="4.3.1")
    options = parser.parse_args(arguments)
    older, newer = runs_on(options.older, options.runs), runs_on(options.newer, options.control)
    for version, runs in ((options.older, older), (options.newer, newer)):
        torn, clean = sum(run.is_torn for run in runs), sum(run.is_clean for run in runs)
        print(f"Apache Kafka {version}, {len(runs)} runs: {torn} with an aborted record that is read, {clean} clean")
    return verdict_on(older, newer)


if __name__ == "__main__":
    raise SystemExit(main())
