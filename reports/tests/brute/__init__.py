"""The rules of one partition in plain Python, pair by pair: slow, obvious, and what the NumPy form is held to.

A file for each family; each registers its rules with the oracle.
"""

from highwater.reports.tests.brute import log, polls, register, storage, transactions
from highwater.reports.tests.brute.oracle import RULES, Brute

__all__ = ["RULES", "Brute", "log", "polls", "register", "storage", "transactions"]
