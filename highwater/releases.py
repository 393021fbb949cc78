"""Download a release of Apache Kafka, Kafka Streams, ZooKeeper, Kroxylicious or Spark's Kafka source from Maven.

Its dependencies come with it.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from highwater.artefacts import cache_folder, move_into_cache
from highwater.errors import UsageError
from highwater.temporary import temporary_folder

NEWEST: Final = "4.3.1"
SLF4J_SIMPLE: Final = "org.slf4j:slf4j-simple:1.7.36"
SLF4J_2: Final = "org.slf4j:slf4j-simple:2.0.17"
DEPENDENCIES_BEFORE_2_6: Final = (  # packages that Java no longer contains, and the Log4j 1 that these releases require
    "javax.xml.bind:jaxb-api:2.3.1",
    "javax.activation:javax.activation-api:1.2.0",
    "log4j:log4j:1.2.17",
    "org.slf4j:slf4j-log4j12:1.7.25",
)
ZOOKEEPER: Final = (
    "org.apache.zookeeper:zookeeper:3.9.3",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
)
STREAMS: Final = "streams-"
SPARK: Final = "spark-kafka-"
KROXYLICIOUS: Final = "kroxylicious-"
TESTS: Final = "tests-"
"""The classes of Apache Kafka's own tests of its core, without their dependencies."""
PART_OF_SPARK: Final = "org.apache.hadoop,com.google.code.findbugs"  # 60 MB that no other release needs
COPY_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
NO_DEPENDENCIES: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
TIMEOUT_S: Final = 240


def version_numbers(version: str, where: str) -> tuple[int, ...]:
    """Return the numbers of a version such as `2.8` or `0.10.2.2`; raise UsageError for anything else."""
    if not all(part.isdecimal() for part in version.split(".")):
        raise UsageError(f"expected a version such as 2.8, not {version!r}", where=where)
    return tuple(map(int, version.split(".")))


def check_version(version: str, where: str) -> None:
    """Raise UsageError for a version that is none, or one later than the newest release whose rules are known."""
    newest = version_numbers(NEWEST, where)[:2]
    if version_numbers(version, where)[:2] > newest:
        raise UsageError(
            f"no rules are known of Kafka {version}", where=where, hint=f"the newest is {'.'.join(map(str, newest))}"
        )


def release_number(version: str) -> tuple[int, ...]:
    """Return the numbers of a version such as `0.10.2.2`; raise UsageError if it is not a release number."""
    parts = version.split(".")
    if not 3 <= len(parts) <= 4 or not all(part.isdecimal() for part in parts):
        raise UsageError("not a release of Apache Kafka", where=version, hint="name one in full, such as 4.3.1")
    return tuple(int(part) for part in parts)


def _coordinates(version: str) -> tuple[str, ...]:
    """Return the Maven coordinates to download. The Scala version and the tools artefact depend on the release."""
    if version.startswith("zookeeper-"):
        return ZOOKEEPER
    if version.startswith(STREAMS):
        return (f"org.apache.kafka:kafka-streams:{version.removeprefix(STREAMS)}", SLF4J_SIMPLE)
    if version.startswith(SPARK):
        return (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version.removeprefix(SPARK)}",)
    if version.startswith(KROXYLICIOUS):
        return (f"io.kroxylicious:kroxylicious-runtime:{version.removeprefix(KROXYLICIOUS)}", SLF4J_2)
    if version.startswith(TESTS):
        return (f"org.apache.kafka:kafka_2.13:{version.removeprefix(TESTS)}:test",)
    number = release_number(version)
    scala = "2.13" if number >= (2, 6) else "2.11" if number >= (0, 9) else "2.10"
    core = f"org.apache.kafka:kafka_{scala}:{version}"
    if number >= (4,):
        return (core, f"org.apache.kafka:kafka-tools:{version}", SLF4J_SIMPLE)
    return (core, SLF4J_SIMPLE) if number >= (2, 6) else (core, *DEPENDENCIES_BEFORE_2_6)


def fetch_release(version: str) -> Path:
    """Return the folder with the jars of a release; raise UsageError if Maven is missing or fails."""
    path = cache_folder() / "apache-kafka" / version
    if path.is_dir():
        return path
    maven = shutil.which("mvn")
    if maven is None:
        raise UsageError("mvn is not on PATH", where=f"Apache Kafka {version}", hint="apt-get install maven")
    print(f"Downloading Apache Kafka {version} from Maven Central, up to 90 MB.", file=sys.stderr)
    coordinates = _coordinates(version)
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(place=cache_folder()) as folder:
        (folder / "pom.xml").write_text(_pom(coordinates))
        command = [
            maven,
            "-q",
            "-B",
            COPY_DEPENDENCIES,
            "-DincludeScope=runtime",
            f"-DexcludeGroupIds={PART_OF_SPARK}",
            f"-DoutputDirectory={folder / 'lib'}",
        ]
        try:
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"mvn did not finish within {TIMEOUT_S} s", where=f"Apache Kafka {version}") from error
        if run.returncode:
            last = (run.stdout + run.stderr).strip().splitlines()[-1:]
            raise UsageError(f"mvn failed: {last}", where=f"Apache Kafka {version}", hint="check the network")
        move_into_cache(folder / "lib", path)
    return path


def _pom(coordinates: tuple[str, ...]) -> str:
    dependencies = ""
    for coordinate in coordinates:
        group, artefact, version, *classifier = coordinate.split(":")
        alone = f"<classifier>{classifier[0]}</classifier>{NO_DEPENDENCIES}" if classifier else ""
        dependencies += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artefact}</artifactId>"
            f"<version>{version}</version>{alone}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>highwater</groupId>'
        "<artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
