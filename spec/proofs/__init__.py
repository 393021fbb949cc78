"""Unbounded proofs of the protocols with z3; README.md explains how to write and read them."""
