"""The conformance suite in virtual time: the target `simulator[:N]` (`target.py`).

Each case has a world of its own, so that its run depends on nothing but the case and the broker's code.
"""
