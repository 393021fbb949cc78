"""Run the suite on Apache Kafka with settings of its users: `python -m highwater.soak.other_settings`.

A clause that fails on a correct broker is wrong, so each release must pass with each configuration, as users would test
it: by its address, without a file that says what the settings are. The result of each run is kept in the folder
`--results`, and a run that is there is not repeated.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from highwater.conformance.runner import Interrupted, Options, run_suite
from highwater.conformance.running.verdicts import (
    BROKEN,
    UNDECIDED,
    expected_by,
    known_expectations,
    results_of,
)
from highwater.conformance.targets.apache_kafka import ApacheKafka
from highwater.errors import ExitCode

RELEASES: Final = ("2.8.2", "3.9.1", "4.3.1")
CONFIGURATIONS: Final[Mapping[str, Mapping[str, object]]] = {
    "few liberties": {
        "auto.create.topics.enable": "false",
        "group.min.session.timeout.ms": 1500,
        "offset.metadata.max.bytes": 100,
        "connections.max.idle.ms": 60_000,
        "num.partitions": 3,
    },
    "small limits": {
        "group.max.session.timeout.ms": 20_000,
        "transaction.max.timeout.ms": 30_000,
        "group.max.size": 20,
        "message.max.bytes": 300_000,
        "max.incremental.fetch.session.cache.slots": 100,
        "max.connections.per.ip": 500,
    },
    "other logs": {
        "log.message.timestamp.type": "LogAppendTime",
        "compression.type": "gzip",
        "log.segment.bytes": 1_048_576,
        "log.index.interval.bytes": 64,
        "unclean.leader.election.enable": "true",
        "log.flush.interval.messages": 1,
    },
}


def failures(release: str, settings: Mapping[str, object], options: Options) -> dict[str, Any]:
    """Return the counts of verdicts, and the messages of cases that failed or have no result, unless they are known."""
    with closing(ApacheKafka(release, settings=settings)) as cluster:
        (target,) = run_suite([cluster.bootstrap], options)["targets"]
    known = known_expectations(f"apache-kafka:{release}")
    bad = [case for case in results_of(target) if case.verdict in BROKEN | UNDECIDED and not expected_by(case, known)]
    return {"verdicts": target["verdicts"], "wrong": {case.case: case.message for case in bad}}


def results(folder: Path, releases: list[str], names: list[str], options: Options) -> Iterator[dict[str, Any]]:
    """Yield the result of each pair, from the folder if it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for release in releases:
        for name in names:
            path = folder / f"{release} {name}.json"
            if not path.exists():
                found = failures(release, CONFIGURATIONS[name], options)
                path.write_text(json.dumps(found, indent=1))
            yield {"release": release, "name": name, **json.loads(path.read_text())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", nargs="+", default=list(RELEASES), metavar="VERSION")
    parser.add_argument("--configurations", nargs="+", default=list(CONFIGURATIONS), choices=list(CONFIGURATIONS))
    parser.add_argument("--clause", nargs="+", default=[], help="only these clauses, as in `highwater conform`")
    parser.add_argument("--results", type=Path, default=Path("other-settings"), help="folder to keep results in")
    given = parser.parse_args()
    try:
        return _print_results(given)
    except Interrupted:
        print(f"interrupted; the finished runs are in {given.results}")
        return ExitCode.UNDECIDED


def _print_results(given: argparse.Namespace) -> int:
    wrong = 0
    for found in results(given.results, given.releases, given.configurations, Options(clauses=given.clause)):
        counts = ", ".join(f"{count} {verdict}" for verdict, count in found["verdicts"].items() if count)
        print(f"Apache Kafka {found['release']}, {found['name']}: {counts}", flush=True)
        for case, message in found["wrong"].items():
            print(f"  {case}: {message}", flush=True)
        wrong += len(found["wrong"])
    print(f"{wrong} cases failed or have no result")
    return ExitCode.VIOLATED if wrong else ExitCode.HELD


if __name__ == "__main__":
    raise SystemExit(main())
