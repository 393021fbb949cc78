"""For each rule a history with one anomaly, and the most similar history without it."""

from highwater.reports.tests.pairs import of_a_run, of_evidence, of_readers, of_the_log, of_transactions
from highwater.reports.tests.pairs.scenario import PAIRS, Scenario

__all__ = ["PAIRS", "Scenario", "of_a_run", "of_evidence", "of_readers", "of_the_log", "of_transactions"]
