"""Apache Spark's Kafka source and sink, as a batch and as a stream."""

import sys
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.reference.tests.clients import spark_copy
from highwater.reference.tests.clients.build import run
from highwater.reference.tests.test_clients import create
from highwater.releases import fetch_release
from highwater.toolchain import java

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600), pytest.mark.soak]
CONNECTOR = "spark-kafka-4.2.0"
RECORDS = 4_000


def test_spark_writes_reads_and_copies_every_record(bootstrap: str, tmp_path: Path) -> None:
    try:
        java()
        jars = ",".join(map(str, sorted(fetch_release(CONNECTOR).glob("*.jar"))))
    except UsageError as error:
        pytest.skip(str(error))
    first, second = (create(bootstrap, 3) for _ in range(2))
    arguments = (jars, bootstrap, first, second, str(tmp_path), str(RECORDS))
    output = run(sys.executable, spark_copy.__file__, *arguments, timeout_s=300).stdout
    expected = f"{RECORDS} {sum(range(RECORDS))} {RECORDS}"
    assert [line for line in output.splitlines() if line.startswith((first, second))] == [
        f"{first} {expected}", f"{second} {expected}",
    ]  # fmt: skip
