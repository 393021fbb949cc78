"""Tests of one group run in one worker, so that a cluster or a Spark session that they share starts once."""

import pytest


@pytest.mark.xdist_group("groups")
def test_the_scheduler_is_given_the_group(request: pytest.FixtureRequest) -> None:
    """pytest-xdist 3.8 with pytest 9.2 drops the group without a word, and every worker starts everything."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("only workers add the group")
    assert request.node.nodeid.endswith("@groups")
