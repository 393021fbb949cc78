"""Count how often a late commit ends the wrong transaction on Apache Kafka: `python -m highwater.soak.late_commit`.

The network keeps back a request to commit. The client has sent it again over a new connection, and has begun the next
transaction, when the first copy arrives. Up to transaction version 1 no request names its transaction, and the copy
commits what the next transaction has written so far (KAFKA-17754); from version 2 each transaction has an epoch of its
own (KIP-890). The client is Apache Kafka's own, `examples/clients/LateCommit.java`, the same for each release.
"""

import argparse
import shlex
from collections.abc import Sequence
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


def client_command(run: int) -> str:
    """Return the command of the client; each run has topics and a transactional id of its own."""
    jars = f"{fetch_release(CLIENT_RELEASE)}/*"
    return shlex.join([str(java().executable), *FLAGS, "-cp", jars, str(PROGRAM), str(run)])


def one_run(bootstrap: str, run: int, folder: Path) -> tuple[Verdict, list[str], list[str]]:
    """Run the client once; return the verdict on its history, the violated rules, and the answers to late requests."""
    (fault,) = read_schedule(SCHEDULE).faults
    with FaultProxy(bootstrap, [str(fault.option("line"))]) as proxy:
        with UserClients(client_command(run), proxy.bootstrap, folder) as clients:
            clients.wait()
        assert clients.failure is None, clients.failure
        late = list(proxy.late)
    found = audit(folder / FOLDER / HISTORY)
    return found.verdict, sorted({finding.name for finding in found.findings}), late


def count(version: str, runs: int) -> int:
    """Return in how many runs a reader received a record of an aborted transaction; print each run."""
    seen = 0
    cluster = ApacheKafka(version, 1, settings={"default.replication.factor": 1})
    try:
        for run in range(1, runs + 1):
            with temporary_folder("late-commit-") as folder:
                verdict, anomalies, late = one_run(cluster.bootstrap, run, folder)
            seen += ABORTED_READ in anomalies
            print(f"{version} run {run}: {verdict} {' '.join(anomalies)}; {' '.join(late)}", flush=True)
    finally:
        cluster.close()
    print(f"Apache Kafka {version}: an aborted record was read in {seen} of {runs} runs", flush=True)
    return seen


def main(arguments: Sequence[str] | None = None) -> ExitCode:
    """Run both releases; exit code 1 if the older one shows the anomaly in too few runs, or the newer one in any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="runs on the older release")
    parser.add_argument("--control", type=int, default=50, help="runs on the newer release")
    parser.add_argument("--older", default="3.9.1")
    parser.add_argument("--newer", default="4.3.1")
    options = parser.parse_args(arguments)
    shown = count(options.older, options.runs) >= 0.9 * options.runs if options.runs else True
    clean = count(options.newer, options.control) == 0 if options.control else True
    return ExitCode.HELD if shown and clean else ExitCode.VIOLATED


if __name__ == "__main__":
    raise SystemExit(main())
