"""Run Java programs of a release of Apache Kafka; a test is skipped where Java or Maven is missing."""

import subprocess
from collections.abc import Sequence
from typing import Final

import pytest

from highwater.errors import UsageError
from highwater.java_classes import ClassArchive
from highwater.releases import NEWEST, fetch_release
from highwater.toolchain import java

QUICK_START: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
TOOLS: Final = "org.apache.kafka.tools."
TIMEOUT_S: Final = 200


def command(version: str, main: str, *arguments: str, flags: Sequence[str] = QUICK_START) -> list[str]:
    """Return the command of a main class; a cluster of this release has left an archive of classes, if one has run."""
    jars = f"{fetch_release(version)}/*"
    classes = ClassArchive(f"apache-kafka-{version}", jars).using()
    return [str(java().executable), *flags, *classes, "-cp", jars, main, *arguments]


def run_tool(main: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a class of `org.apache.kafka.tools`, or one with its full name, of the newest release to its end."""
    try:
        line = command(NEWEST, main if main.startswith("kafka.") else f"{TOOLS}{main}", *arguments)
    except UsageError as error:
        pytest.skip(str(error))
    return subprocess.run(line, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def output_of(main: str, *arguments: str, given: str = "") -> str:
    """Return what a tool prints to its standard output; it must end without an error."""
    ended = run_tool(main, *arguments, given=given)
    assert ended.returncode == 0, ended.stderr[-3_000:] + ended.stdout[-1_000:]
    return ended.stdout
