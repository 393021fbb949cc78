"""A dataset on S3 has the findings of the same dataset on disk; the S3 API is moto's server on loopback."""

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from highwater.errors import UsageError
from highwater.ports import Ports
from highwater.reports.dataset import writer
from highwater.reports.synth.write import synth_dataset
from highwater.soak.spark_cluster import PLANTED
from highwater.toolchain import spark_java_home

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("spark"), pytest.mark.timeout(1800)]
START_S = 60


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Start the server; yield its address."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto, a server of the S3 API, is not installed")
    ports = Ports(1)
    port = ports[0]
    ports.release()
    with subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        address = f"http://127.0.0.1:{port}"
        try:
            _wait_for(address)
            yield address
        finally:
            server.terminate()


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urlopen(address):
                return
        except URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def hadoop_aws() -> str:
    """Return the Maven coordinates of the S3 file system for the Hadoop in pyspark."""
    pyspark = pytest.importorskip("pyspark")
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    found = re.search(r"api-(.*)\.jar", jar.name)
    assert found is not None
    return f"org.apache.hadoop:hadoop-aws:{found[1]}"


def test_a_dataset_on_s3_has_the_same_findings(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files

    try:
        spark_java_home()
    except UsageError as error:
        pytest.skip(f"no Spark here: {error}")
    folder = tmp_path / "dataset"
    monkeypatch.setattr(writer, "ROW_GROUP", 200)
    synth_dataset(folder, operations=3_000, seed=3, planted=PLANTED)
    s3 = S3FileSystem(
        access_key="a", secret_key="b", region="us-east-1", endpoint_override=endpoint, allow_bucket_creation=True
    )
    s3.create_dir("history")
    copy_files(str(folder), "history/dataset", LocalFileSystem(), s3)
    settings = {
        "spark.jars.packages": hadoop_aws(), "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1", "spark.hadoop.fs.s3a.access.key": "a",
        "spark.hadoop.fs.s3a.secret.key": "b", "spark.hadoop.fs.s3a.path.style.access": "true",
    }  # fmt: skip
    spark = [argument for key, value in settings.items() for argument in ("--conf", f"{key}={value}")]
    there = audited("s3a://history/dataset", "--engine", "spark", *spark)
    here = audited(str(folder), "--engine", "local")
    assert here["findings"]
    assert there | {"history": ""} == here | {"history": ""}


def audited(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "highwater", "audit", *arguments, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    if re.search(r"unresolved dependency|UNRESOLVED|download failed", ended.stdout + ended.stderr):
        pytest.skip("the jars of Hadoop's S3 file system cannot be fetched from Maven Central")
    assert ended.returncode in {0, 1, 3}, ended.stderr
    result: dict[str, object] = json.loads(ended.stdout.strip().splitlines()[-1])
    return result
