"""The compiled simulator: the same runs as the interpreted one, and the same violations."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.soak.compiled import build
from highwater.soak.compiled.__main__ import command, environment
from highwater.soak.compiled.native_classes import rewritten

RUNS = """
import sys
from highwater.commands.run_audit import audit_run
from highwater.commands.seed_sweep import code_digest
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.guard_focus import settings_without_guard
from highwater.fuzz.simulator.search import run_seed
from highwater.reference import broker
print(broker.__file__.endswith(".so"), file=sys.stderr)
print(code_digest())
for settings, seeds in (
    (Settings(swarm=True), range(6)), (Settings(swarm=True, pace=30), range(1)),
    (Settings(swarm=True, wire=True), (3,)),
    *((settings_without_guard(guard), range(4)) for guard in sys.argv[1:]),
):
    for seed in seeds:
        result = run_seed(seed, settings, tracing=True, audit=audit_run)
        print(seed, result.events, result.fingerprint, result.trace_hash, sorted(result.situations), result.audited,
              result.violation and (result.violation.invariant, result.violation.event), sep=";")
"""
GUARDS = ("AckAfterCommit", "TruncateToCommonEpoch", "InitBumpsEpoch", "RevokeBeforeJoin")
MODULE = '''"""Two classes."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0  # pixels

    def moved(self) -> "Point":
        return replace(self, x=self.x + 1)


@dataclass(slots=True)
class Path(object):
    points: list[Point] = field(default_factory=list)


@dataclass(slots=True)
class Line:
    points: list[Point] = field(default_factory=list)
'''


def test_a_dataclass_becomes_a_plain_class_that_behaves_the_same() -> None:
    source = rewritten(MODULE)
    assert "@mypyc_attr(native_class=False)\n@dataclass(slots=True)\nclass Path" in source
    assert source.count("@dataclass") == 1
    original, native = {"__name__": __name__}, {"__name__": __name__}
    exec(MODULE, original)
    exec(source, native)
    for names in (original, native):
        point, line = names["Point"], names["Line"]
        assert point(1) == point(x=1, y=0) != point(2)  # type: ignore[operator]
        assert hash(point(1)) == hash((1, 0))  # type: ignore[operator]
        assert repr(point(1).moved()) == "Point(x=2, y=0)"  # type: ignore[operator]
        assert line().points is not line().points  # type: ignore[operator]


def test_a_module_without_dataclasses_is_left_alone() -> None:
    source = "from dataclasses import fields\n"
    assert rewritten(source) == source


def test_the_listed_modules_exist() -> None:
    sources = {name for name, _ in build._source_files()}
    missing = [name for name in build.compiled_modules() if f"highwater/{name.replace('.', '/')}.py" not in sources]
    assert not missing


def test_no_coroutine_gives_two_types_to_the_name_of_an_exception() -> None:
    """A compiled coroutine keeps such a name in a field that has the first type, and fails for the second."""
    sources, two = dict(build._source_files()), []
    for module in build.compiled_modules():
        path = f"highwater/{module.replace('.', '/')}.py"
        for function in ast.walk(ast.parse(sources[path].read_text())):
            if isinstance(function, ast.AsyncFunctionDef):
                handlers = [each for each in ast.walk(function) if isinstance(each, ast.ExceptHandler) and each.name]
                types = {(each.name, ast.unparse(each.type)) for each in handlers if each.type is not None}
                two += [f"{path}: {function.name}"] * (len(types) > len({name for name, _ in types}))
    assert not two


def test_a_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UsageError, match="no-such-compiler is not on PATH"):
        build._compiler()


def test_missing_mypyc_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="mypyc is not installed"):
        build._compiler()


@pytest.mark.soak  # to compile takes minutes
@pytest.mark.timeout(1_800)
def test_compiled_and_interpreted_runs_are_the_same(tmp_path: Path) -> None:
    if reason := why_unsupported():
        pytest.skip(reason)
    script = tmp_path / "runs.py"
    script.write_text(RUNS)
    printed = {}
    for kind, variables in (("True\n", environment(build.compiled_tree())), ("False\n", None)):
        done = subprocess.run(
            [sys.executable, str(script), *GUARDS],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == kind
        printed[kind] = done.stdout
    assert printed["True\n"] == printed["False\n"]
    violated = [line for line in printed["True\n"].splitlines() if not line.endswith("None")]
    assert len(violated) > len(GUARDS), "a compiled guard that is off must be found"


def why_unsupported() -> str:
    """Return what is missing on this machine for compiling; empty if nothing."""
    try:
        build._compiler()
    except UsageError as error:
        return str(error)
    return ""


def test_old_versions_are_removed_from_the_cache(tmp_path: Path) -> None:
    for name, days in (("old", build.KEPT_DAYS + 1), ("newer", build.KEPT_DAYS - 1)):
        (tmp_path / name / "tree").mkdir(parents=True)
        then = time.time() - days * 86_400
        os.utime(tmp_path / name, (then, then))
    build._forget_old(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["newer"]


def test_arguments_are_those_of_highwater_or_of_python() -> None:
    assert command(["simulate", "--wire"])[1:] == ["-m", "highwater", "simulate", "--wire"]
    assert command(["-m", "highwater.experiments.figures", "sweep"])[1:] == [
        "-m",
        "highwater.experiments.figures",
        "sweep",
    ]
