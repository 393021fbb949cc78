"""Which engine checks a history: here, or on Spark. Both call the same kernel."""

import os

from reports.audit import Checker, check_locally
from spec.formats.verdict import UsageError

# Measured (audit.md, section 6): up to some thirty million operations the local engine wins; a line is about 150 B.
SPARK_FROM_BYTES = 4 << 30


def checker_for(engine: str, where: str | os.PathLike[str]) -> Checker:
    if engine not in {"local", "spark", "auto"}:
        raise UsageError(f"no engine {engine!r}", where="--engine", mend="local, spark or auto")
    large = os.path.exists(where) and os.path.getsize(where) >= SPARK_FROM_BYTES  # noqa: PTH110, PTH202
    if engine == "spark" or (engine == "auto" and large):
        from reports.pipeline import check_on_spark

        return check_on_spark
    return check_locally
