"""Compile librdkafka's own tests and run those that need brokers on a cluster of three.

The sources come with the crate rdkafka-sys, through cargo; a build is kept in the cache folder.  librdkafka is compiled
without OpenSSL, so its tests of TLS and SASL skip themselves.  Where a test calls Apache Kafka's `kafka-topics.sh`,
`highwater topics` runs: the newest `kafka-topics.sh` refuses the small segments of these tests.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from highwater.artefacts import cache_folder, move_into_cache
from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import UsageError
from highwater.soak.client_suites.results import FAILED, PASSED, SKIPPED, Results
from highwater.temporary import temporary_folder

OUTCOME: Final = re.compile(r"={17} Test (\S+) (PASSED|FAILED|SKIPPED) ={17}")
OUTCOMES: Final = {"PASSED": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}
FAILURE: Final = re.compile(r'### Test "(\d\S+?)(?: \(.*?\))?" failed')
PARALLEL: Final = 4
TIMEOUT_S: Final = 3_600
PATIENCE: Final = 3  # the factor of its time limits, which are those of an idle machine
SETTINGS: Final[dict[str, object]] = {  # its scenario "default", and the delay that is Apache Kafka's default
    "num_partitions": 4,
    "default_replication_factor": 3,
    "group_initial_rebalance_delay_ms": 3_000,
}
WITHOUT: Final = ("--disable-ssl", "--disable-gssapi", "--disable-curl")
BUILD: Final = (("./configure", *WITHOUT), ("make", "-j2", "libs"), ("make", "-j2", "-C", "tests", "build"))
MANIFEST: Final = """\
[package]
name = "sources"
version = "0.0.0"
edition = "2021"

[lib]
path = "/dev/null"

[dependencies]
rdkafka-sys = "={version}"
"""
KAFKA_TOPICS: Final = """\
#!/bin/sh
# As called: kafka-topics.sh --bootstrap-server ADDRESSES --create|--alter|--delete --topic NAME OPTIONS
servers=$2; verb=${{3#--}}; topic=$5
shift 5
exec {python} -m highwater topics "$verb" "$topic" --bootstrap-server "$servers" "$@"
"""


@dataclass(frozen=True, slots=True)
class LibrdkafkaSuite:
    """All tests that need brokers, but not those of `excluded` (a test's number: the reason).

    Of a test of `subtests`, only the named sub-tests run: the first sub-test that fails ends the whole test.  Those of
    `alone` run one at a time, after the others: they put threads between client and socket (sockem), and beside them
    the connections of other tests fail with "Socket operation on non-socket", or stand still until a time-out.
    """

    version: str
    excluded: Mapping[str, str] = field(default_factory=dict)
    subtests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alone: tuple[str, ...] = ()

    def run(self, log: Path) -> Results:
        """Run the tests on new brokers, and write their output to `log`."""
        tests, results = _built(self.version) / "tests", Results()
        with (
            temporary_folder() as folder,
            log.open("w") as output,
            ReferenceCluster(3, settings=SETTINGS) as cluster,
        ):
            environment = {**os.environ, **_environment(tests, folder, cluster.bootstrap)}
            for name, parallel, selected in self._selections():
                started = output.tell()
                ended = subprocess.run(
                    ["./test-runner", "-L", f"-p{parallel}"],
                    cwd=tests, env={**environment, **selected}, timeout=TIMEOUT_S,
                    stdout=output, stderr=subprocess.STDOUT, check=False,
                )  # fmt: skip
                output.seek(0, os.SEEK_END)
                found = outcomes(log.read_text(errors="replace")[started:], name)
                if ended.returncode and not found.failed:
                    found.add(FAILED, f"test-runner {name} ended with code {ended.returncode}")
                results.extend(found)
        return results

    def _selections(self) -> list[tuple[str, int, dict[str, str]]]:
        """Return for each start of the program its sub-test, if any, how many tests at once, and what selects them."""
        left_out = ",".join([*self.excluded, *self.subtests, *self.alone])
        parts = [(part, {"TESTS": test, "SUBTESTS": part}) for test, named in self.subtests.items() for part in named]
        return [
            ("", PARALLEL, {"TESTS_SKIP": left_out}),
            ("", 1, {"TESTS": ",".join(self.alone)}),
            *((part, 1, selected) for part, selected in parts),
        ]


def outcomes(output: str, subtest: str = "") -> Results:
    """Return the results in the output of the test program; a test that failed prints no other line."""
    results, suffix = Results(), f"/{subtest}" if subtest else ""
    failed = dict.fromkeys(FAILURE.findall(output))
    for name, outcome in OUTCOME.findall(output):
        if name not in failed:
            results.add(OUTCOMES[outcome], name + suffix)
    for name in failed:
        results.add(FAILED, name + suffix)
    return results


def _environment(tests: Path, folder: Path, bootstrap: str) -> dict[str, str]:
    config, tools = folder / "test.conf", folder / "bin"
    config.write_text(f"bootstrap.servers={bootstrap}\ntest.timeout.multiplier={PATIENCE}\n")
    tools.mkdir()
    program = tools / "kafka-topics.sh"
    program.write_text(KAFKA_TOPICS.format(python=sys.executable))
    program.chmod(0o755)
    return {
        "RDKAFKA_TEST_CONF": str(config),
        "TEST_KAFKA_VERSION": "3.9.0",
        "KAFKA_PATH": str(folder),
        "BROKERS": bootstrap,
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}{os.pathsep}{tests.parent / 'src-cpp'}",
    }


def _built(version: str) -> Path:
    """Return the folder of librdkafka at a version of its crate, compiled once."""
    target = cache_folder() / f"librdkafka-{version}"
    if (target / "tests" / "test-runner").exists():
        return target
    for program in ("cargo", "make", "g++"):
        if shutil.which(program) is None:
            raise UsageError(f"{program} is not on PATH", hint="install Rust's cargo, make and a C++ compiler")
    with temporary_folder(place=cache_folder()) as folder:
        (folder / "Cargo.toml").write_text(MANIFEST.format(version=version))
        _run(folder, "cargo", "vendor", "--quiet", "vendor")
        source = folder / "vendor" / "rdkafka-sys" / "librdkafka"
        for command in BUILD:
            _run(source, *command)
        move_into_cache(source, target)
    return target


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{command[0]}: {(done.stderr or done.stdout).strip()[-500:]}", hint="see its output")
