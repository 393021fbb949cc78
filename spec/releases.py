"""Apache Kafka of any release, and ZooKeeper, from Maven Central with all they need: fetched on first use into the
user's cache."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from spec.artefacts import cache_folder, move_into_cache
from spec.formats.verdict import UsageError

NEWEST: Final = "4.3.1"
LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"
OLD: Final = (  # what Java no longer brings along, and the log that they write to by name
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
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
TIMEOUT_S: Final = 240


def release_number(version: str) -> tuple[int, ...]:
    """`0.10.2.2` as numbers; UsageError for anything else."""
    parts = version.split(".")
    if not 3 <= len(parts) <= 4 or not all(part.isdecimal() for part in parts):
        raise UsageError("not a release of Apache Kafka", where=version, mend="name one in full, such as 4.3.1")
    return tuple(int(part) for part in parts)


def _coordinates(version: str) -> tuple[str, ...]:
    """What Maven is asked for. The broker was built for one Scala after the other; its tools left it in 3.5."""
    if version.startswith("zookeeper-"):
        return ZOOKEEPER
    number = release_number(version)
    scala = "2.13" if number >= (2, 6) else "2.11" if number >= (0, 9) else "2.10"
    core = f"org.apache.kafka:kafka_{scala}:{version}"
    if number >= (4,):
        return (core, f"org.apache.kafka:kafka-tools:{version}", LOGGING)
    return (core, LOGGING) if number >= (2, 6) else (core, *OLD)


def fetch_release(version: str) -> Path:
    """The folder of its jars. Raises UsageError when Maven is missing or fails."""
    place = cache_folder() / "apache-kafka" / version
    if place.is_dir():
        return place
    maven = shutil.which("mvn")
    if maven is None:
        raise UsageError("mvn is not on PATH", where=f"Apache Kafka {version}", mend="apt-get install maven")
    print(f"fetching Apache Kafka {version} from Maven Central, up to 54 MB", file=sys.stderr)
    coordinates = _coordinates(version)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        folder = Path(name)
        (folder / "pom.xml").write_text(_pom(coordinates))
        command = [maven, "-q", "-B", COPY, "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"]
        try:
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as late:
            raise UsageError(f"no answer within {TIMEOUT_S} s", where=f"Apache Kafka {version}") from late
        if run.returncode:
            last = (run.stdout + run.stderr).strip().splitlines()[-1:]
            raise UsageError(f"mvn failed: {last}", where=f"Apache Kafka {version}", mend="check the network")
        move_into_cache(folder / "lib", place)
    return place


def _pom(coordinates: tuple[str, ...]) -> str:
    dependencies = ""
    for each in coordinates:
        group, artefact, version = each.split(":")
        dependencies += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artefact}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>highwater</groupId>'
        "<artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
