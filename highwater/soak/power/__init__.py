"""The power of the conformance suite: how many wrong brokers it detects.

A mutant is the reference broker with one small change. A cluster of processes loads it, the cases of the suite run on
that cluster, and the first case that fails twice kills the mutant. `mutants` makes them, `nodes` runs them, `lines`
records which case executes which line, so that `trials` runs only cases that can notice; `results` keeps the outcomes.
"""
