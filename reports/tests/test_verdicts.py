"""Audits of small histories whose verdict was wrong once; the name of each file begins with the right one."""

from pathlib import Path

import pytest

from highwater.reports.audit import audit

HISTORIES = sorted((Path(__file__).parent / "verdicts").glob("*.ndjson"))


@pytest.mark.parametrize("path", HISTORIES, ids=[path.stem for path in HISTORIES])
def test_the_verdict_is_the_first_word_of_the_name(path: Path) -> None:
    assert audit(path).verdict == path.name.partition("-")[0]
