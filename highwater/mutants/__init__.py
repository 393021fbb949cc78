"""Broken brokers: the reference broker with one text replaced, in tables.

Each file `*.toml` is a set of rows (`table`); a process loads a row instead of its module (`mutation`), and `node` runs
a broker with some of them. `highwater.power` measures which checks find them; the self-test of the wire fuzzer runs the
set `wire`.
"""
