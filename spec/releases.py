"""Apache Kafka from Maven Central, with all it needs: fetched on first use into the user's cache."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from spec.artefacts import cache_folder, move_into_cache
from spec.formats.verdict import UsageError

OLD_EXTRAS: Final = ("javax.xml.bind:jaxb-api:2.3.1", "javax.activation:javax.activation-api:1.2.0")
RELEASES: Final = {
    "4.3.1": (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    "0.10.2.2": ("org.apache.kafka:kafka_2.11:0.10.2.2", *OLD_EXTRAS),
    "zookeeper-3.9.3": (
        "org.apache.zookeeper:zookeeper:3.9.3",
        "io.dropwizard.metrics:metrics-core:4.1.12.1",
        "org.xerial.snappy:snappy-java:1.1.10.5",
    ),
    "0.9.0.1": ("org.apache.kafka:kafka_2.11:0.9.0.1", *OLD_EXTRAS),
}
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
TIMEOUT_S: Final = 240


def fetch_release(version: str) -> Path:
    """The folder of its jars. Raises UsageError when Maven is missing or fails."""
    place = cache_folder() / "apache-kafka" / version
    if place.is_dir():
        return place
    maven = shutil.which("mvn")
    if maven is None:
        raise UsageError("mvn is not on PATH", where=f"Apache Kafka {version}", mend="apt-get install maven")
    print(f"fetching Apache Kafka {version} from Maven Central, up to 54 MB", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        folder = Path(name)
        (folder / "pom.xml").write_text(_pom(RELEASES[version]))
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
