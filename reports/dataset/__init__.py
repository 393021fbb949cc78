"""Store a history that was read once as a folder of Parquet files: see docs/audit/dataset.md."""
