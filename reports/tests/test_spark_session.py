"""The session of the user is used as it is; defaults are set only for a local session of ours."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from highwater.errors import UsageError
from highwater.reports.execution import spark_session
from highwater.reports.synth.write import synth_dataset
from highwater.toolchain import spark_java_home

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
SHOW = """
import json, os
from highwater.errors import UsageError
from highwater.reports.execution.spark_session import spark_session
session = spark_session(conf=(("spark.sql.shuffle.partitions", "7"),))
try:
    spark_session("local[1]")
    rejected = ""
except UsageError as error:
    rejected = str(error)
names = ("spark.app.name", "spark.ui.enabled", "spark.network.timeout", "spark.sql.shuffle.partitions")
print(json.dumps({
    "master": session.sparkContext.master, "python": os.environ.get("PYSPARK_PYTHON"), "rejected": rejected,
    **{name: session.conf.get(name, None) for name in names},
}))
session.stop()
"""
OWN = 'from pyspark.sql import SparkSession\nSparkSession.builder.master("local[3]").appName("mine").getOrCreate()\n'


def shown(command: list[str], environment: dict[str, str], expected: int = 0) -> dict[str, Any]:
    try:
        home = spark_java_home()
    except UsageError as error:
        pytest.skip(f"no Spark here: {error}")
    loopback = {"JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    result = subprocess.run(
        command, env=os.environ | loopback | environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == expected, result.stderr
    last: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return last


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Return another name of this interpreter."""
    link = tmp_path / "my-python"
    link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    link.chmod(0o755)
    return str(link)


@pytest.mark.soak
def test_spark_submit_decides_the_master_and_the_settings(tmp_path: Path, python: str) -> None:
    pyspark = pytest.importorskip("pyspark")
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[3]", "--conf", "spark.network.timeout=777s", str(script)]
    found = shown(command, {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable})
    assert "local[3], not local[1]" in found.pop("rejected")
    assert found == {
        "master": "local[3]", "python": python, "spark.app.name": "show.py", "spark.ui.enabled": None,
        "spark.network.timeout": "777s", "spark.sql.shuffle.partitions": "7",
    }  # fmt: skip


@pytest.mark.soak
def test_an_active_session_is_used_as_it_is() -> None:
    pytest.importorskip("pyspark")
    found = shown([sys.executable, "-c", OWN + SHOW], {"PYSPARK_PYTHON": sys.executable})
    assert "local[3], not local[1]" in found["rejected"]
    assert [found[name] for name in ("master", "spark.app.name", "spark.network.timeout")] == ["local[3]", "mine", None]


def test_defaults_of_ours_do_not_replace_settings_of_the_user(
    tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.master  local[5]\nspark.network.timeout=99s\nspark.ui.enabled true\n"
    )
    for name, value in {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": python, "JAVA_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    options = spark_session._own_builder(None, "audit")._options
    assert {"spark.master", "spark.network.timeout", "spark.ui.enabled"}.isdisjoint(options)
    assert options["spark.driver.host"] == "127.0.0.1"
    assert os.environ["PYSPARK_PYTHON"] == python
    on_a_cluster = spark_session._own_builder("spark://cluster:7077", "audit")._options
    assert on_a_cluster == {"spark.app.name": "audit", "spark.master": "spark://cluster:7077"}


JOB = """
import sys
from highwater.command_line import main
main(["audit", *sys.argv[1:], "--engine", "spark"])
"""
PROBE = """
from pyspark.sql import SparkSession
context = SparkSession.builder.getOrCreate().sparkContext
(place,) = context.parallelize([0], 1).map(lambda _: __import__("highwater.errors").errors.__file__).collect()
assert "/shipped/highwater/" in place, place
"""
HERE = Path(__file__).parents[2]


@pytest.mark.long
def test_spark_submit_ships_highwater_to_a_cluster(tmp_path: Path) -> None:
    """Run the commands of docs/audit/spark.md on a cluster of two executors."""
    pyspark = pytest.importorskip("pyspark")
    tree = tmp_path / "tree"
    shutil.copytree(HERE, tree, ignore=shutil.ignore_patterns(".*", "results", "build", "*.egg-info", "tests"))
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(tree),
    ]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("highwater_kafka-*.whl")
    shipped = wheel.rename(tmp_path / "highwater.zip")
    job, dataset = tmp_path / "audit_job.py", tmp_path / "dataset"
    job.write_text(PROBE + JOB)
    synth_dataset(dataset, operations=3_000, seed=3, planted={4: 1})
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [
        str(submit), "--master", "local-cluster[2,1,1024]", "--archives", f"{shipped}#shipped",
        "--conf", "spark.executorEnv.PYTHONPATH=shipped", str(job), str(dataset),
    ]  # fmt: skip
    found = shown([*command, "--json"], {"PYSPARK_PYTHON": sys.executable}, expected=1)
    assert [finding["name"] for finding in found["findings"]] == ["lost-write"]
