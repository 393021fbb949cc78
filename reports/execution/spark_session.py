"""The Spark session of an audit: the user's if there is one, else a local one.

A session that is active in this process is used as it is. Under `spark-submit`, or with PYSPARK_SUBMIT_ARGS, the
session is the one that these describe. In both cases nothing of ours is set, and only settings that the user gives to
Highwater are added. Otherwise a session is created; `CONF` holds its defaults if it is local, and
`spark-defaults.conf`, PYSPARK_PYTHON and SPARK_LOCAL_IP take precedence.
"""

import atexit
import logging
import os
import sys
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.temporary import make_folder
from highwater_kafka import install_hint

MASTER: Final = "local[2,4]"
"""Two tasks at a time; the job fails when a task has failed four times."""
CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # A machine that is busy for two minutes would lose its only executor, and the job would wait forever.
    "spark.network.timeout": "1200s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SUBMITTED: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
"""Environment variables that `spark-submit`, or the user, sets for a session that is described elsewhere."""
LOGGERS: Final = ("", "py4j.clientserver", "py4j.java_gateway")


def spark_session(
    master: str | None = None, name: str = "highwater-audit", conf: tuple[tuple[str, str], ...] = ()
) -> Any:
    """Return the session of the user, or create one with a suitable Java; a local one binds to loopback only.

    UsageError if Spark does not start, or if the user's session has another master than `master`.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError("pyspark is not installed", hint=install_hint("spark")) from error
    ours = SparkContext._active_spark_context is None and not is_submitted()
    builder = _own_builder(master, name) if ours else SparkSession.builder
    for logger in LOGGERS if ours else ():
        logging.getLogger(logger).addFilter(_is_no_interruption)
    for key, value in conf:
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise UsageError(f"Spark did not start: {error}", hint="see highwater doctor, or use --engine local") from error
    if ours:
        atexit.register(session.stop)  # a local-cluster would otherwise log lost executors at exit
    elif master is not None and session.sparkContext.master != master:
        what = f"the Spark session that is active already has the master {session.sparkContext.master}, not {master}"
        raise UsageError(what, where="--master", hint="leave out --master, or stop that session")
    return session


def _is_no_interruption(record: logging.LogRecord) -> bool:
    """Drop the tracebacks that py4j logs for an interruption and its consequences, since it raises them as well."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is None


def is_submitted() -> bool:
    """Return whether the session is described by `spark-submit`."""
    return any(name in os.environ for name in SUBMITTED)


def _own_builder(master: str | None, name: str) -> Any:
    """Return the builder of a new session, and set the environment that it starts with."""
    from pyspark.sql import SparkSession

    from highwater.toolchain import spark_java_home

    os.environ["JAVA_HOME"] = str(spark_java_home())
    configured = _configured()
    builder = SparkSession.builder.appName(name)
    if master is not None or "spark.master" not in configured:
        builder = builder.master(master or MASTER)
    if not (master or configured.get("spark.master", MASTER)).startswith("local"):
        return builder
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_WORKER_DIR", str(make_folder("spark-")))  # of a local-cluster
    if "spark.pyspark.python" not in configured:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in CONF.items():
        if key not in configured:
            builder = builder.config(key, value)
    return builder


def _configured() -> dict[str, str]:
    """Return the settings in `spark-defaults.conf`, which settings of a builder would replace."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and Path(home) / "conf")
    path = Path(folder) / "spark-defaults.conf" if folder else None
    if path is None or not path.is_file():
        return {}
    lines = [line.strip().replace("=", " ", 1).split(None, 1) for line in path.read_text().splitlines()]
    return {line[0]: line[1] for line in lines if len(line) == 2 and not line[0].startswith("#")}
