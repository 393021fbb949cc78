"""For each rule one anomaly and what is nearest to it, told as small histories."""

from highwater.reports.tests.pairs import of_a_run, of_readers, of_the_log, of_transactions
from highwater.reports.tests.pairs.telling import PAIRS

__all__ = ["PAIRS", "of_a_run", "of_readers", "of_the_log", "of_transactions"]
