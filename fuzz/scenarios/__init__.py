"""Scenarios whose steps are written by hand: text files with commands and golden output (commands: `runner.py`)."""
