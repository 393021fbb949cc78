"""Walks through the behaviours of a specification: TLC generates them, and a broker must respond as the model does.

`behaviours` the graph of a module's steps, generated once · `walk` one path through it, against a broker.
"""
