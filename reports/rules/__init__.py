"""The rules of the auditor: one file per family; partitions are checked with NumPy, runs with small tables."""
