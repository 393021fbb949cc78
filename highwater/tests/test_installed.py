"""Highwater installed from its wheel works in any project, and the page on adding a case works as written."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

import msgspec
import pytest

from highwater.conformance.report import Report
from highwater.processes import Processes, python_command
from highwater.tests.test_distribution import BESIDE, INSTEAD
from highwater_kafka import OTHER

ROOT = Path(__file__).parents[2]
PACKED = (
    "spec",
    "reference",
    "conformance",
    "fuzz",
    "reports",
    "highwater",
    "highwater_kafka",
    "examples",
    "setup.py",
    "pyproject.toml",
    "README.md",
)
PAGE = ROOT / "docs" / "conformance" / "adding-a-case.md"
TRIED = "MD-99"
TIMEOUT_S = 240
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
MODULE_PATH = ("PYTHONPATH", "PYTHONSAFEPATH")


def run(*command: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command without the variables by which a developer's shell may choose another package."""
    variables = {name: value for name, value in os.environ.items() if name not in MODULE_PATH}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a wheel of this tree plus the additions of the page, and our dependencies."""
    root = tmp_path_factory.mktemp("installed")
    tree, home = root / "tree", root / "venv"
    tree.mkdir()
    for name in PACKED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    add_as_written(tree)
    built = run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", root, tree, cwd=root)
    assert built.returncode == 0, built.stderr
    venv.create(home, with_pip=False)
    pip_in(home, "install", "--no-deps", *root.glob("*.whl"))
    place = next(home.glob("lib/python*/site-packages"))
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def pip_in(home: Path, *arguments: object) -> None:
    """Run pip, which is not in the virtual environment itself, for that environment."""
    ended = run(*PIP, "--python", home / "bin" / "python", *arguments, cwd=home)
    assert ended.returncode == 0, ended.stderr


def add_as_written(tree: Path) -> None:
    clause, case = (
        re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL) for language in ("toml", "python")
    )
    assert clause
    assert case
    with (tree / "spec" / "clauses" / "MD.toml").open("a") as clauses:
        clauses.write("\n" + clause[1])
    (tree / "conformance" / "cases" / "test_tried.py").write_text(case[1])


@pytest.mark.long
def test_pytest_finds_the_cases_and_options_of_the_plugin(installed: Path, tmp_path: Path) -> None:
    place = run(
        installed / "python", "-c", "import highwater.conformance as suite; print(suite.__file__)", cwd=tmp_path
    )
    assert installed.parent in Path(place.stdout.strip()).parents
    requested = ("--hw-target=reference:1", f"--hw-clause={TRIED}", "--hw-clause=LST-1", "--junitxml=some.xml", "-n0")
    ended = run(
        installed / "python", "-m", "pytest", "--pyargs", "highwater.conformance.cases", *requested, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stdout
    suite = ElementTree.parse(tmp_path / "some.xml").getroot()[0]
    assert int(suite.get("tests", "0")) >= 1


@pytest.mark.soak
def test_other_runs_of_pytest_are_not_affected(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_other():\n"
        "    assert not {'highwater.conformance.plugin', 'highwater.reference'} & set(sys.modules)\n"
    )
    ended = run(installed / "python", "-m", "pytest", "-q", "test_other.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.long
def test_the_case_of_the_page_passes_and_every_report_is_written(installed: Path, tmp_path: Path) -> None:
    files = {f"--{kind}": f"run.{kind}" for kind in ("html", "markdown", "junit", "badge")}
    options = [part for pair in files.items() for part in pair]
    ended = run(
        installed / "highwater",
        "conform",
        "reference:1",
        "--clause",
        TRIED,
        "--json",
        "--jobs",
        1,
        *options,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    report = msgspec.json.decode(ended.stdout, type=Report)
    assert [(case.case, case.verdict) for case in report.targets[0].cases] == [(TRIED, "pass")]
    assert report.run.suite.startswith("highwater ")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files.values())
    assert "Metadata names each broker once." in (tmp_path / "run.html").read_text()


@pytest.mark.long
def test_the_case_of_the_page_detects_its_defect(installed: Path, tmp_path: Path) -> None:
    requested = ("conform", "reference:1", "--clause", TRIED, "--jobs", 1, "--self-test")
    ended = run(installed / "highwater", *requested, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 cases detect their defects" in ended.stdout


COLLIDING = ("spec", "reference", "conformance", "fuzz", "reports")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of another user whose packages have the names of our folders."""
    for name in COLLIDING:
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(f"OWN = {name!r}\n")
        (package / f"test_{name}.py").write_text(
            f"import {name}\n\n\ndef test_the_package_is_ours():\n    assert {name}.OWN == {name!r}\n"
        )
    return tmp_path


@pytest.mark.parametrize("command", [("-m", "pytest"), ("-m", "pytest", "-p", "no:cacheprovider", "-v")])
def test_a_project_with_packages_of_the_same_names_is_not_affected(
    installed: Path, project: Path, command: tuple[str, ...]
) -> None:
    ended = run(installed / "python", *command, cwd=project)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 passed" in ended.stdout


def test_the_commands_run_in_that_project(installed: Path, project: Path) -> None:
    for command in ((installed / "highwater",), (installed / "python", "-m", "highwater")):
        ended = run(*command, "conform", "reference:1", "--clause", "LST-1", "--jobs", 1, cwd=project)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the package `highwater` of a clone, which lacks `highwater.conformance`."""
    (tmp_path / "highwater").mkdir()
    (tmp_path / "highwater" / "__init__.py").write_text("")
    return tmp_path


def test_the_commands_run_in_a_clone(installed: Path, clone: Path) -> None:
    command = (installed / "highwater", "conform", "reference:1", "--clause", "LST-1", "--jobs", 1)
    ended = run(*command, cwd=clone)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_programs_of_the_package_ignore_a_clone(installed: Path, clone: Path) -> None:
    _, *arguments = python_command("-m", "highwater.node", "--help")
    ended = run(installed / "python", *arguments, cwd=clone)
    assert ended.returncode == 0, ended.stderr


def test_the_nodes_of_a_cluster_ignore_a_clone(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.chdir(clone)
    nodes = Processes(clone, {1: [sys.executable, "-m", "highwater.node", "--help"]}, guarded=False)
    nodes.start(1)
    with closing(nodes):
        while nodes.is_running(1):
            time.sleep(0.01)
    assert (clone / "1.log").read_text().startswith("usage: python -m highwater.node")


def test_the_wheel_has_the_files_named_in_its_help_and_no_tests(installed: Path) -> None:
    package = next(installed.parent.glob("lib/python*/site-packages/highwater"))
    assert [path for path in package.rglob("*") if "tests" in path.parts] == []
    for name in ("py.typed", "fuzz/schedules/kip101.json", "fuzz/seeds/TruncateByEpoch.json", "spec/guards.toml",
                 "spec/contracts/PartitionLog.tla", "examples/clients/two_libraries.py"):  # fmt: skip
        assert (package / name).is_file(), name
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for name in (line for line in tracked.splitlines() if line.endswith((".toml", ".tla", ".cfg", ".j2", ".ini"))):
        top, _, rest = name.partition("/")
        if top in COLLIDING and "tests" not in Path(name).parts:
            assert (package / top / rest).is_file(), name


def other_wheel(folder: Path) -> Path:
    """Write a wheel like that of the unrelated distribution `highwater`, without downloading its code."""
    path, information = folder / f"{OTHER}-0.0.1-py3-none-any.whl", f"{OTHER}-0.0.1.dist-info"
    files = {
        "highwater/__init__.py": '"""The package of another project."""\n',
        f"{information}/METADATA": "Metadata-Version: 2.1\nName: highwater\nVersion: 0.0.1\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{information}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{information}/RECORD"]))
    return path


@pytest.mark.long
def test_the_other_distribution_is_reported_until_its_removal_is_complete(installed: Path, tmp_path: Path) -> None:
    """Installers overwrite our `__init__.py`, and an uninstallation removes it; the commands work nevertheless."""
    (ours,), home = installed.parents[1].glob("*.whl"), tmp_path / "venv"
    venv.create(home, with_pip=False)
    place = next(home.glob("lib/python*/site-packages"))
    expected = {
        ("install", "--no-deps", ours): "",
        ("install", "--no-deps", "--no-index", other_wheel(tmp_path)): BESIDE.format(place=place) + "\n",
        ("uninstall", "--yes", OTHER): INSTEAD.format(place=place / "highwater") + "\n",
        ("install", "--no-deps", "--force-reinstall", ours): "",
    }
    for arguments, printed in expected.items():
        pip_in(home, *arguments)
        ended = run(home / "bin" / "highwater", "--version", cwd=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, printed), arguments
        assert re.fullmatch(r"highwater \d+\.\d+\.\d+\n", ended.stdout)
