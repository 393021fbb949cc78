"""For each rule one anomaly and what is nearest to it, told as small histories."""

from reports.tests.pairs import of_a_run, of_readers, of_the_log, of_transactions
from reports.tests.pairs.telling import PAIRS

__all__ = ["PAIRS", "of_a_run", "of_readers", "of_the_log", "of_transactions"]
