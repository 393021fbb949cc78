"""The functions that find anomalies, by what they look at."""
