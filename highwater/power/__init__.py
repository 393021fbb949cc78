"""How many wrong brokers the checks of this project find: `python -m highwater.power --help`.

A mutant is the reference broker with one change (`highwater.mutants`, `generated`). A judge is a check that should
notice it: the conformance suite in virtual time (`suite`) or the simulator with faults and invariants (`simulator`). A
trial forks this process; the fork loads the mutant instead of its module, and runs one check of the judge after another
until one fails (`trial`). `store` keeps the trials and what killed each mutant, and computes the score.

Invariants: only the mutant differs from the correct broker; a check that fails on the correct broker judges no mutant.

Deliberately absent: mutants of the TLA+ models (`spec/mutation`), and brokers as processes: a trial opens no port and
waits for no clock, so that one failure decides.
"""
