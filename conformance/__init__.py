"""The conformance suite: cases that hold a broker to the clauses of the protocol, and what runs them."""

from typing import Final

CLIENT_ID: Final = "highwater-conform"
"""The client id in every request of the suite."""
