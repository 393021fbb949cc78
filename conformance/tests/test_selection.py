"""Which cases a run has: by feature, pattern and age, and as the docs say."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from typer.testing import CliRunner

from highwater.command_line import application
from highwater.conformance import plugin
from highwater.conformance.running import verdicts
from highwater.conformance.running.selection import in_order
from highwater.conformance.tests.listed_cases import TOGETHER, cases_of, chosen, dry_run
from highwater.spec.clauses import load_clauses

DOCS = Path(__file__).parents[2] / "docs" / "conformance" / "README.md"


@TOGETHER
def test_patterns_choose_and_exclude_cases() -> None:
    fetched = chosen(clauses=["FET-1*"])
    assert {case.partition("[")[0] for case in fetched} >= {"FET-1", "FET-10"}
    assert all(case.startswith("FET-1") for case in fetched)
    assert chosen(clauses=["FET-1*"], excluded=["FET-1?*"]) == {"FET-1"}, "FET-1[small records] matches, too"


@TOGETHER
def test_every_limit_reaches_the_process_that_runs_the_cases() -> None:
    limits = {
        "areas": ["ADM", "API", "FET"], "clauses": ["*-1*", "ADM-50"], "excluded": ["FET-1?"], "since": "0.8",
        "until": "2.4",
    }  # fmt: skip
    found = cases_of(dry_run(**limits, level="must"))
    assert found == chosen(**limits, level="must")
    for limit in limits:
        assert found < chosen(**{name: value for name, value in limits.items() if name != limit}, level="must"), limit
    assert found < chosen(**limits)


@TOGETHER
def test_long_cases_run_if_asked_for_or_named_and_are_listed_if_not() -> None:
    target = dry_run(areas=["TXN"])
    left_out, usual = set(target["left_out"]), cases_of(target)
    assert left_out == {"TXN-38", "TXN-38[InitProducerId]", "TXN-39"}
    assert not left_out & usual
    assert chosen(areas=["TXN"]) == usual | left_out
    assert cases_of(dry_run(clauses=["TXN-38"])) == {"TXN-38", "TXN-38[InitProducerId]"}


@TOGETHER
def test_clauses_are_chosen_by_the_version_that_introduced_them() -> None:
    def number(case: str) -> tuple[int, ...]:
        return tuple(map(int, (load_clauses()[case.partition("[")[0]].since or "0").split(".")))

    found = chosen(areas=["ADM"], since="2.3", until="2.4")
    assert found
    assert {number(case) for case in found} <= {(2, 3), (2, 4)}
    others = chosen(areas=["ADM"]) - found
    assert others
    assert not [case for case in others if (2, 3) <= number(case) <= (2, 4)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--clause", "FET-999"], "no clause 'FET-999'"),
        (["--exclude", "NONE-*"], "no clause is named like 'NONE-*'"),
        (["--feature", "transaction"], "did you mean transactions"),
        (["--area", "FRN"], "did you mean FRM"),
        (["--expect", "/nowhere/known.toml"], "cannot be read"),
        (["--kafka-version", "abc"], "--kafka-version: expected a version such as 2.8, not 'abc'"),
        (["--kafka-version", "99"], "no rules are known of Kafka 99; the newest is 4.3"),
        (["--since", "2.x"], "--since: expected a version"),
        (["--until", "5"], "--until: no rules are known of Kafka 5"),
    ],
)
def test_a_name_that_selects_nothing_is_refused(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(application("conform"), ["conform", "reference", "--dry-run", *arguments])
    assert result.exit_code != 0
    assert says in f"{result.output} {result.exception}"


@pytest.mark.parametrize(
    ("arguments", "areas"),
    [
        ([], {clause.area for clause in load_clauses().values()}),
        (["--area", "frm"], {"FRM"}),
        (["--feature", "protocol", "--exclude", "API-*"], {"FRM"}),
        (["--clause", "API-6[Fetch v12]", "--exclude", "API-1[ApiVersions v3]"], {"API"}),
    ],
)
def test_the_list_has_the_chosen_clauses(arguments: list[str], areas: set[str]) -> None:
    """It had all clauses whatever was chosen."""
    result = CliRunner().invoke(application("conform"), ["conform", "--list", "--json", *arguments])
    listed = json.loads(result.stdout)
    assert {each["clause"].partition("-")[0] for each in listed} == areas
    assert arguments or len(listed) == len(load_clauses())


def test_the_example_of_the_docs_selects_cases() -> None:
    (line,) = re.findall(r"(?m)^pytest (--pyargs .*)$", DOCS.read_text())
    arguments = [each for each in shlex.split(line) if not each.startswith("--junitxml")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        *arguments,
        "-n",
        "0",
        "--collect-only",
        "-qq",
        "--hw-target",
        "reference",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=DOCS.parent).stdout
    assert sum(map(int, re.findall(r": (\d+)$", listed, re.MULTILINE))) > 5, listed


def item(case: str, *markers: str) -> pytest.Item:
    """Return a stand-in of a case with these markers."""
    marks = dict.fromkeys(markers, True) | {"clause": SimpleNamespace(args=(case, None))}
    return cast("pytest.Item", SimpleNamespace(nodeid=case, get_closest_marker=marks.get))


def test_fast_cases_come_first_of_these_the_clauses_of_which_most_brokers_deviate() -> None:
    often, _ = verdicts.deviations_by_clause().most_common(1)[0]
    never = next(clause for clause in load_clauses() if not verdicts.deviations_by_clause()[clause])
    items = [item("FRM-1", "cluster_fault"), item("FRM-2", "slow"), item(never), item(often)]
    assert [each.nodeid for each in in_order(items)] == [often, never, "FRM-2", "FRM-1"]


def test_one_worker_begins_with_the_last_cases_and_each_case_is_taken_once() -> None:
    tasks = plugin._tasks(plugin.Served("a:1", {}), 3, 1, alone=[4], count=6)
    first, second, last, own = (task.cases for task in tasks)
    assert [next(first), next(second), next(last)] == [0, 1, 5]
    assert [*second, *last] == [2, 3]
    assert [*own, *first] == [4]
