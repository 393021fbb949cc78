"""Stories stepped by hand, each a text with its golden output (see `runner.py` for the words)."""
