"""Installed from its wheel, the suite works for somebody else; the page on adding a case works as it is written."""

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from conformance.report import Report

ROOT = Path(__file__).parents[2]
PACKED = ("spec", "reference", "conformance", "fuzz", "reports", "highwater.py", "pyproject.toml", "README.md")
PAGE = ROOT / "docs" / "conformance" / "adding-a-case.md"
TRIED = "MD-99"
TIMEOUT_S = 240


def run(*command: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a wheel of this tree and of what the page adds to it, and our dependencies."""
    root = tmp_path_factory.mktemp("installed")
    tree, home = root / "tree", root / "venv"
    tree.mkdir()
    for name in PACKED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    add_as_written(tree)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    built = run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", root, tree, cwd=root)
    assert built.returncode == 0, built.stderr
    venv.create(home, with_pip=False)
    put = run(*pip, "--python", home / "bin" / "python", "install", "--no-deps", *root.glob("*.whl"), cwd=root)
    assert put.returncode == 0, put.stderr
    place = next(home.glob("lib/python*/site-packages"))
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def add_as_written(tree: Path) -> None:
    clause, case = (
        re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL) for language in ("toml", "python")
    )
    assert clause
    assert case
    with (tree / "spec" / "clauses" / "MD.toml").open("a") as clauses:
        clauses.write("\n" + clause[1])
    (tree / "conformance" / "cases" / "test_tried.py").write_text(case[1])


def test_pytest_finds_the_cases_and_the_options_by_itself(installed: Path, tmp_path: Path) -> None:
    place = run(installed / "python", "-c", "import conformance; print(conformance.__file__)", cwd=tmp_path)
    assert installed.parent in Path(place.stdout.strip()).parents
    asked = ("--hw-target=reference:1", f"--hw-clause={TRIED}", "--hw-clause=LST-1", "--junitxml=some.xml", "-n0")
    ended = run(installed / "python", "-m", "pytest", "--pyargs", "conformance.cases", *asked, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout
    suite = ElementTree.parse(tmp_path / "some.xml").getroot()[0]
    assert int(suite.get("tests", "0")) >= 1


def test_other_runs_of_pytest_are_not_touched(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_other():\n    assert not {'conformance.plugin', 'reference'} & set(sys.modules)\n"
    )
    ended = run(installed / "python", "-m", "pytest", "-q", "test_other.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout


def test_the_case_of_the_page_holds_and_every_report_is_written(installed: Path, tmp_path: Path) -> None:
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


def test_the_case_of_the_page_sees_its_defect(installed: Path, tmp_path: Path) -> None:
    asked = ("conform", "reference:1", "--clause", TRIED, "--jobs", 1, "--self-test")
    ended = run(installed / "highwater", *asked, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 cases catch their defects" in ended.stdout
