"""For each rule a history with one anomaly, and the most similar history without it."""

from highwater.reports.tests.pairs import of_a_run, of_readers, of_the_log, of_transactions
from highwater.reports.tests.pairs.telling import PAIRS

__all__ = ["PAIRS", "of_a_run", "of_readers", "of_the_log", "of_transactions"]
