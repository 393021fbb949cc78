"""The audit as a Spark job: one Parquet bucket for each partition, scheduled by Spark, checked by the same kernel.

No shuffle: a partition's operations are written into one file at ingest, and each task reads whole files.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reports.columns import read_bucket, write_bucket
from reports.ingest.history import Ingested
from reports.rules.found import Found, Promise
from reports.rules.partition import check
from spec.formats.verdict import UsageError

SCHEMA = "key string, rule long, first long, second long, offset long, information boolean"
TASKS = 8


def spark_session(master: str = "local[2,4]", name: str = "highwater-audit") -> Any:
    """A session that is quiet, with the Java that Spark can use, and on loopback if local; UsageError without one."""
    from spec.toolchain import spark_java_home

    os.environ["JAVA_HOME"] = str(spark_java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    building = SparkSession.builder.master(master)
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        building = building.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    session = (
        building.appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def check_on_spark(history: Ingested) -> Iterable[tuple[str, list[Found]]]:
    """The findings of every partition, as the local engine would give them."""
    try:
        session = spark_session()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"Spark did not start: {error}", mend="see highwater doctor, or use --engine local") from error
    promise = Promise.of(history.config)
    with tempfile.TemporaryDirectory(prefix="highwater-audit-") as folder:
        buckets = []
        for number, (key, operations) in enumerate(history.partitions.items()):
            path = Path(folder) / f"{number}.parquet"
            write_bucket(path, operations)
            buckets.append((key, str(path)))
        if not buckets:
            return []
        frame = session.createDataFrame(buckets, "key string, path string").repartition(min(TASKS, len(buckets)))
        rows = frame.mapInPandas(lambda batches: _check_buckets(batches, promise), SCHEMA).collect()
    return _regroup(rows, [key for key, _ in buckets])


def _check_buckets(batches: Iterator[Any], promise: Promise) -> Iterator[Any]:
    """In a Spark worker: read each bucket, run the kernel, send the findings back as rows."""
    import pandas as pd

    for batch in batches:
        for key, path in zip(batch["key"], batch["path"], strict=True):
            for found in check(read_bucket(Path(path)), promise):
                yield pd.DataFrame(
                    {
                        "key": key,
                        "rule": found.rule,
                        "first": found.first,
                        "second": found.second,
                        "offset": found.offset,
                        "information": found.information,
                    }
                )


def _regroup(rows: list[Any], keys: list[str]) -> list[tuple[str, list[Found]]]:
    grouped: dict[tuple[str, int, bool], list[tuple[int, int, int]]] = {}
    for row in rows:
        grouped.setdefault((row.key, row.rule, row.information), []).append((row["first"], row.second, row.offset))
    found: dict[str, list[Found]] = {key: [] for key in keys}
    for (key, rule, information), triples in sorted(grouped.items()):
        first, second, offset = np.array(triples, np.int64).T
        found[key].append(Found(rule, first, second, offset, information=information))
    return list(found.items())
