"""A history that was read once, kept as a folder of Parquet: see docs/audit/dataset.md."""
