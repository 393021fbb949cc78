"""Stateful conversations with a model beside them: what the broker says must be what the model says.

`stage` calls in versions drawn by chance · `logs`, `groups`, `transactions` the plays · `playing` one play of a seed.
"""
