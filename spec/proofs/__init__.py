"""Unbounded proofs of the protocols with z3: README.md says how they are written and read."""
