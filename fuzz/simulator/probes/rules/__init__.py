"""Probes of one rule each, in all its cases: what holds while something is unfinished.

A replica lags, a request waits, a log refuses writes, a transaction is open, a reassignment or a deletion runs.
"""
