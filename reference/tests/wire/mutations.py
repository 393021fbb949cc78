"""Mutations that make hostile bytes from valid ones."""

from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st

EDGES: Final = [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xfe", b"\xff" * 10, b"\x80" * 10]

Mutation = Callable[[bytes], bytes]


def mutations() -> st.SearchStrategy[Mutation]:
    """Flip a byte, cut the end, or write an edge value over or into the bytes."""
    places = st.floats(0, 1, exclude_max=True)
    flip = st.tuples(places, st.integers(1, 255)).map(lambda drawn: flipped(*drawn))
    over = st.tuples(places, st.sampled_from(EDGES), st.booleans()).map(lambda drawn: overwritten(*drawn))
    return st.one_of(flip, places.map(cut), over)


def cut(place: float) -> Mutation:
    return lambda data: data[: int(place * len(data))]


def flipped(place: float, mask: int) -> Mutation:
    def mutate(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + bytes(byte ^ mask for byte in data[at : at + 1]) + data[at + 1 :]

    return mutate


def overwritten(place: float, edge: bytes, inserted: bool) -> Mutation:
    def mutate(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + edge + data[at + (0 if inserted else len(edge)) :]

    return mutate
