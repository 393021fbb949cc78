"""What the suites of client libraries print is counted; their `docker` stops and starts a broker."""

import subprocess
from pathlib import Path

import pytest

import highwater.reference
from highwater.soak.client_suites import go_tests, librdkafka
from highwater.soak.client_suites.results import FAILED, PASSED, SKIPPED, Results
from highwater.soak.client_suites.suites import SUITES, Suite
from highwater.soak.client_suites.toxiproxy import docker

GO = """\
=== RUN   TestA
--- PASS: TestA (0.00s)
    --- PASS: TestA/sub (0.00s)
--- FAIL: TestB (1.00s)
--- SKIP: TestC (0.00s)
"""
LIBRDKAFKA = """\
\x1b[36m[0001_multiobj  /  1.5s] \x1b[32m================= Test 0001_multiobj PASSED =================\x1b[0m
\x1b[36m[0053_stats     /  0.0s] ================= Test 0053_stats SKIPPED =================
\x1b[31m### Test "0081_admin (do_test_CreateAcls:1539)" failed at 0081-admin.c:1622:do_test_CreateAcls() at Tue ###
\x1b[31m### Test "0081_admin (do_test_CreateAcls:1539)" failed at 0081-admin.c:1630:do_test_CreateAcls() at Tue ###
\x1b[31m### Test "0052_msg_timestamps" failed at test.c:5073:test_kafka_topics() at Tue ###
\x1b[31m### Test "<MAIN>" failed at test.c:1798:test_wait_exit() at Tue ###
"""


def test_results_of_go_are_counted() -> None:
    found = go_tests.outcomes(GO)
    assert found.names == {PASSED: ["TestA", "TestA/sub"], FAILED: ["TestB"], SKIPPED: ["TestC"]}
    assert str(found) == "2 passed, 1 failed, 1 skipped"


def test_a_test_of_librdkafka_that_fails_twice_is_counted_once() -> None:
    found = librdkafka.outcomes(LIBRDKAFKA)
    assert found.names == {
        PASSED: ["0001_multiobj"], FAILED: ["0081_admin", "0052_msg_timestamps"], SKIPPED: ["0053_stats"]
    }  # fmt: skip
    assert librdkafka.outcomes(LIBRDKAFKA, "Acls").failed == ["0081_admin/Acls", "0052_msg_timestamps/Acls"]


def test_results_of_several_programs_are_joined() -> None:
    joined = Results()
    joined.extend(go_tests.outcomes(GO))
    joined.extend(librdkafka.outcomes(LIBRDKAFKA))
    assert str(joined) == "3 passed, 3 failed, 2 skipped"


def test_docker_compose_stops_and_starts_a_broker(tmp_path: Path) -> None:
    called: list[tuple[str, int]] = []
    stop, start = (lambda node, verb=verb: called.append((verb, node)) for verb in ("stop", "start"))
    with docker(stop, start, tmp_path) as environment:
        for verb in ("stop", "start"):
            subprocess.run(["docker", "compose", verb, "kafka-3"], env=environment, check=True, timeout=60)
    assert called == [("stop", 3), ("start", 3)]


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_the_readme_says_which_version_runs_and_why_tests_are_left_out(suite: Suite) -> None:
    text = Path(highwater.reference.__file__).with_name("README.md").read_text()
    assert suite.version.rpartition("+")[2].lstrip("v") in text  # of a crate: the version of the library in it
    assert [reason for reason in suite.excluded.values() if reason not in text] == []
