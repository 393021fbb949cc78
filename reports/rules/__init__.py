"""The rules of the auditor: one file a family, NumPy for what is by partition, small tables for what is by run."""
