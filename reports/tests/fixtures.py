"""One Spark session for all tests of a process: each start costs ten seconds of processor time."""

from collections.abc import Iterator
from typing import Any

import pytest

from highwater.errors import UsageError
from highwater.reports.execution.spark_session import spark_session


@pytest.fixture(scope="session")
def local_spark() -> Iterator[Any]:
    """Return the session; its tests need the group "spark", so that only one worker starts it."""
    try:
        session = spark_session()
    except UsageError as error:
        pytest.skip(f"no Spark here: {error}")
    yield session
    session.stop()
