"""No text names the unrelated distribution `highwater` as ours, and every command reports it where it is installed."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

import highwater
from highwater.tests.test_vocabulary import tracked
from highwater_kafka import DISTRIBUTION, OTHER, install_hint, installed_version
from highwater_kafka.collision import REMEDY

ROOT: Final = Path(__file__).parents[2]

# -- texts -------------------------------------------------------------------------------------------

NAME: Final = r"(?<![\w./@-])highwater"
WRONG: Final = {
    "an extra": rf"{NAME}\[",
    "an argument": rf"\b(?:[Ii]nstall|add|download|uvx|pipx run)['\"]?[ ,][^\n`;&#]{{0,99}}?{NAME}(?![\w/.*-])",
    "a requirement": rf"{NAME} ?(?:===?|~=|!=|>=|<=|@ ?(?:git|https?|file)\b)",
    "a line of a requirements file": r"^highwater$",
    "a file of the distribution": r"\bhighwater-[\d*][^\s\"']*\.(?:whl|tar\.gz|dist-info)",
    "a look-up of metadata": r"\b(?:version|distribution|metadata|requires|files)\(['\"]highwater['\"]\)",
}
CONTINUED: Final = re.compile(r"\\\n\s*|(?<=[\"'],)\n\s*")
"""A command in a shell script and a list of arguments in Python go on in the next line."""


def wrong_names(text: str) -> list[str]:
    """Return each place that names the other distribution as something to install, with its kind."""
    whole = CONTINUED.sub(" ", text)
    return [f"{kind}: {found[0]}" for kind, rule in WRONG.items() for found in re.finditer(rule, whole, re.MULTILINE)]


@pytest.mark.parametrize(
    "sample",
    [
        "pip install 'highwater[audit]'",
        "pip install '{extras}highwater[{{extra}}]'",
        "pip install {other}",
        "Run `pip install --upgrade {other}` first.",
        "uv pip install --python 3.11 {other}==0.1.0",
        "uv tool install {other}",
        "uv add {other}",
        "uvx {other} conform localhost:9092",
        "pipx run {other}",
        "python -m pip download {other}",
        "pip install \\\n    {other}",
        'run("pip", "install", "{other}")',
        '[\n    "pip",\n    "install",\n    "--no-deps",\n    "{other}",\n]',
        "HIGHWATER: {other}==0.1.0",
        "HIGHWATER: {other} @ git+https://github.com/OWNER/highwater@main",
        'all = ["{other}[spec,audit]"]',
        'dependencies = ["{other}>=0.1"]',
        "rich==13.9\n{other}\ntyper==0.15",
        "pip install {other}-*.whl",
        "mv dist/{other}-0.1.0-py3-none-any.whl dist/x.zip",
        'version("{other}")',
        "metadata.version('{other}')",
    ],
)
def test_a_text_that_names_the_other_distribution_is_found(sample: str) -> None:
    assert wrong_names(sample.format(other=OTHER, extras="").replace("highwater[", f"{OTHER}["))


@pytest.mark.parametrize(
    "sample",
    [
        "pip install 'highwater-kafka[audit]'",
        "pip install . && highwater doctor",
        "pip install '.[audit]'   # then: highwater audit",
        "pip install git+https://github.com/OWNER/highwater@main",
        "pip install highwater_kafka-*.whl",
        "pip uninstall highwater",
        "after `pip install .` the folder `highwater` of a clone is not imported",
        "where highwater is installed",
        "usage: highwater [OPTIONS]",
        "import highwater.conformance",
        "git clone https://github.com/OWNER/highwater",
        'partition="highwater-0"',
    ],
)
def test_a_text_about_the_project_is_accepted(sample: str) -> None:
    assert wrong_names(sample) == []


def test_no_tracked_text_names_the_other_distribution() -> None:
    own = str(Path(__file__).relative_to(ROOT))
    names = [*tracked(), "requirements.lock", "requirements-uv.lock"]
    assert {name: found for name in names if name != own if (found := wrong_names((ROOT / name).read_text()))} == {}


def test_the_project_and_its_extras_have_the_name_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    listed = [project["dependencies"], *project["optional-dependencies"].values()]
    assert OTHER not in {re.split(r"[^\w-]", requirement)[0] for requirements in listed for requirement in requirements}
    assert install_hint("audit") == "pip install 'highwater-kafka[audit]'"
    assert installed_version() == metadata.version("highwater-kafka") == highwater.__version__


# -- installations -----------------------------------------------------------------------------------

BESIDE: Final = (
    "highwater: Another distribution, highwater 0.0.1, is installed in {place}, and owns highwater/__init__.py "
    f"as highwater-kafka does; {REMEDY}"
)
INSTEAD: Final = (
    "highwater: The package highwater, imported from {place}, is not that of highwater-kafka, or is incomplete; "
    f"{REMEDY}"
)
ENTRY_POINT: Final = "from highwater_kafka.command import main; main()"


def python(*arguments: str, path: list[Path], site: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run Python with folders before those of this environment, or instead of them; it ignores the current folder."""
    alone = [] if site else ["-S"]
    variables = {"PYTHONPATH": ":".join(map(str, path))}
    command = [sys.executable, "-P", *alone, *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def install_other(folder: Path, *, code: str = "", name: str = OTHER) -> None:
    """Write the files that an installer writes for the other distribution, over ours if the folder has them."""
    (folder / "highwater").mkdir(exist_ok=True)
    (folder / "highwater" / "__init__.py").write_text(f'"""The package of another project."""\n{code}\n')
    information = folder / f"{name}-0.0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: highwater\nVersion: 0.0.1\n")


@pytest.fixture
def overwritten(tmp_path: Path) -> Path:
    """A folder with our package, as from a wheel, in which the other distribution is installed later."""
    ignored = shutil.ignore_patterns("tests", "soak", "__pycache__")
    shutil.copytree(ROOT / "highwater", tmp_path / "highwater", ignore=ignored)
    for name in ("spec", "reference"):
        shutil.copytree(ROOT / name, tmp_path / "highwater" / name, ignore=ignored)
    shutil.copytree(ROOT / "highwater_kafka", tmp_path / "highwater_kafka", ignore=ignored)
    install_other(tmp_path)
    return tmp_path


def test_a_command_whose_init_was_overwritten_runs_with_a_warning(overwritten: Path) -> None:
    for start in (("-c", ENTRY_POINT), ("-m", "highwater")):
        for arguments, code in ((("--version",), 0), (("guards", "--list"), 0), (("audit", "--no-option"), 2)):
            ended = python(*start, *arguments, path=[overwritten])
            assert ended.returncode == code, ended.stderr
            assert ended.stderr.splitlines()[0] == BESIDE.format(place=overwritten)
            assert len(ended.stderr.splitlines()) == (2 if code else 1)
    assert python("-c", ENTRY_POINT, "--version", path=[overwritten]).stdout == f"highwater {installed_version()}\n"


def test_what_an_uninstallation_leaves_is_reported(overwritten: Path) -> None:
    shutil.rmtree(overwritten / "highwater-0.0.1.dist-info")
    place = overwritten / "highwater" / "__init__.py"
    ended = python("-c", ENTRY_POINT, "--help", path=[overwritten])
    assert (ended.returncode, ended.stderr) == (0, INSTEAD.format(place=place) + "\n")
    place.unlink()
    ended = python("-c", ENTRY_POINT, "--help", path=[overwritten])
    assert (ended.returncode, ended.stderr) == (0, INSTEAD.format(place=place.parent) + "\n")


def test_a_command_beside_an_editable_installation_runs_with_a_warning(tmp_path: Path) -> None:
    """Python imports the package in PYTHONPATH, as it would in `site-packages`, and the import hook has the modules."""
    install_other(tmp_path)
    ended = python("-c", ENTRY_POINT, "guards", "--list", path=[tmp_path])
    assert (ended.returncode, ended.stderr) == (0, BESIDE.format(place=tmp_path) + "\n")


@pytest.mark.parametrize("code", ["", "raise RuntimeError('of the other project')", "import package_that_is_missing"])
def test_a_command_whose_package_is_hidden_ends_with_2_and_one_line(tmp_path: Path, code: str) -> None:
    """Without the import hook (`-S`), as in an editable installation in setuptools' mode `strict`."""
    install_other(tmp_path, code=code)
    for arguments in ("--version", "doctor", "conform"):
        ended = python("-c", ENTRY_POINT, arguments, path=[tmp_path, ROOT], site=False)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == BESIDE.format(place=tmp_path) + "\n"


def test_a_package_without_metadata_that_hides_ours_is_reported(tmp_path: Path) -> None:
    install_other(tmp_path)
    shutil.rmtree(tmp_path / "highwater-0.0.1.dist-info")
    place = tmp_path / "highwater" / "__init__.py"
    for site, code in ((True, 0), (False, 2)):
        ended = python("-c", ENTRY_POINT, "--version", path=[tmp_path, ROOT], site=site)
        assert (ended.returncode, ended.stderr) == (code, INSTEAD.format(place=place) + "\n")


def test_a_command_from_a_folder_reports_that_only_the_other_distribution_is_installed(tmp_path: Path) -> None:
    install_other(tmp_path, name="HighWater")
    ended = python("-c", ENTRY_POINT, "--version", path=[ROOT, tmp_path], site=False)
    assert (ended.returncode, ended.stdout) == (0, "highwater not installed\n")
    assert ended.stderr == BESIDE.format(place=tmp_path) + "\n"
    ended = python("-c", ENTRY_POINT, "--version", path=[tmp_path, ROOT], site=False)
    assert (ended.returncode, ended.stderr) == (2, BESIDE.format(place=tmp_path) + "\n")


def test_without_another_distribution_nothing_is_printed(tmp_path: Path) -> None:
    for name in ("highwater_kafka-0.1.0.dist-info", "highwater_other-1.0.dist-info", "highwater-0.0.1.tmp"):
        (tmp_path / name).mkdir()
    ended = python("-c", ENTRY_POINT, "--version", path=[tmp_path / "missing", tmp_path, Path(__file__)])
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_failure_of_our_own_package_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['highwater.names'] = None\n")
    ended = python("-c", ENTRY_POINT, "--version", path=[tmp_path])
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("ModuleNotFoundError: import of highwater.names halted")


def test_doctor_has_a_row_for_the_other_distribution(tmp_path: Path) -> None:
    def rows(folder: Path) -> Iterator[dict[str, object]]:
        ended = python("-m", "highwater", "doctor", "--json", path=[folder])
        assert ended.returncode == 0, ended.stderr
        yield from (row for row in json.loads(ended.stdout)["capabilities"] if row["name"] == "own package")

    (row,) = rows(tmp_path / "missing")
    assert (row["present"], row["detail"]) == (True, f"highwater-kafka {installed_version()}")
    (tmp_path / "highwater-0.0.1.dist-info").mkdir()
    (row,) = rows(tmp_path)
    assert not row["present"]
    assert f"highwater: {row['detail']}; {row['how']}" == BESIDE.format(place=tmp_path)


def test_the_entry_points_do_not_import_highwater() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"highwater": "highwater_kafka.command:main"}
    assert project["entry-points"]["pytest11"] == {"highwater": "highwater_kafka.pytest_plugin"}
    modules = "highwater_kafka.command, highwater_kafka.pytest_plugin"
    ended = python("-c", f"import sys, {modules}; sys.exit('highwater' in sys.modules)", path=[])
    assert ended.returncode == 0, ended.stderr


def test_pytest_runs_beside_the_other_distribution(tmp_path: Path) -> None:
    install_other(tmp_path, code="raise ImportError('of the other project')")
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    options = ("-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-c", "/dev/null")
    ended = python(*options, str(tmp_path / "test_other.py"), path=[tmp_path])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ended = python(*options, "--pyargs", "highwater.conformance.cases", "--hw-target", "reference:1", path=[tmp_path])
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert ended.stderr.strip() == f"ERROR: {BESIDE.format(place=tmp_path)}"
