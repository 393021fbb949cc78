"""No module is imported under two names, and the packages of the repository only below `highwater`."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("spec", "reference", "conformance", "fuzz", "reports")


def twice_imported() -> dict[str, list[str]]:
    """Return the files of the repository that `sys.modules` holds under more than one name."""
    names = defaultdict(set)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(ROOT) and ".venv" not in Path(file).parts and name != "__main__":
            names[file].add(name)
    return {file: sorted(found) for file, found in names.items() if len(found) > 1}


def test_no_module_of_this_run_has_two_names() -> None:
    assert twice_imported() == {}
    assert not set(FOLDERS) & set(sys.modules)


@pytest.mark.long
def test_a_run_of_the_suite_imports_under_our_names_only(tmp_path: Path) -> None:
    check = tmp_path / "check_names.py"
    check.write_text(
        "import sys\n\n\ndef pytest_sessionfinish():\n"
        f"    found = sorted(set({FOLDERS!r}) & {{name.partition('.')[0] for name in sys.modules}})\n"
        "    print('imported at the top level:', found)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "check_names", "--pyargs", "highwater.conformance.cases", "-n0",
               "--hw-target=reference:1", "--hw-clause=LST-1", "-o", "addopts=", "-p", "no:cacheprovider"]  # fmt: skip
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "imported at the top level: []" in ended.stdout
