"""Examples and options in the documentation are accepted by the programs."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
import typer
from typer.main import get_command

from highwater.command_line import application
from highwater.conformance.client.connection import access_of
from highwater.conformance.running.verdicts import CaseVerdict, Expectation
from highwater.conformance.targets.commands import read_cluster_file
from highwater.power.__main__ import measure

PAGES = sorted((Path(__file__).parents[2] / "docs" / "conformance").iterdir())
README = next(page for page in PAGES if page.name == "README.md")
OF_OTHERS = {"--pyargs", "--junitxml", "--help"}
"""Options of pytest."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_cluster_file_example_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(next(block for block in blocks("toml") if "bootstrap" in block))
    found = read_cluster_file(path)
    assert found.nodes.keys() == {1}
    assert found.command_config == tmp_path / "client.properties"


def test_the_client_properties_example_is_valid(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(blocks("properties")[0].replace("ssl.truststore.location=ca.pem\n", ""))
    access = access_of(tmp_path / "client.properties")
    assert "SCRAM-SHA-512" in repr(access)


def test_the_expectation_file_example_is_valid() -> None:
    block = next(block for block in blocks("toml") if "expectation" in block)
    expectations = msgspec.convert(tomllib.loads(block)["expectation"], list[Expectation])
    assert [expectation.clause for expectation in expectations] == ["FET-9"]


def test_every_verdict_is_explained() -> None:
    assert set(re.findall(r"^\| `([a-z -]+)` \|", README.read_text(), re.MULTILINE)) >= set(CaseVerdict)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_options_exist(page: Path) -> None:
    commands = get_command(application("conform", "diff")).commands  # type: ignore[attr-defined]
    known = {option for name in ("conform", "diff") for parameter in commands[name].params for option in parameter.opts}
    if page.name == "power.md":
        power = typer.Typer()
        power.command()(measure)
        known |= {option for parameter in get_command(power).params for option in parameter.opts}
    reported = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text()))
    reported -= {option for option in reported if option.startswith("--hw-")}
    assert reported - known - OF_OTHERS == set()


def test_links_of_pages_lead_to_existing_files() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
