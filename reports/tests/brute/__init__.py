"""The rules of one partition in plain Python: slow, simple, and the reference for the NumPy implementation.

Each module registers the rules of one family with the oracle.
"""

from highwater.reports.tests.brute import log, polls, register, storage, transactions
from highwater.reports.tests.brute.oracle import RULES, Brute

__all__ = ["RULES", "Brute", "log", "polls", "register", "storage", "transactions"]
