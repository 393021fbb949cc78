"""Stateful sequences, each checked against a model: every reply must be one that the model predicts.

`context` sends requests in random versions · `logs`, `groups`, `transactions`, ... sequences · `run` runs one by seed.
"""
