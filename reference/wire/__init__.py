"""Kafka's wire protocol: bytes to messages and back, without I/O.

`schema` has the annotations, and `messages` one module for each API, written in them. From the annotations come

- `readers` and `writers`, the fast codec behind `codec.encode` and `codec.decode`;
- `described`, the same formats as constructs of `primitives`: slower, readable, and the oracle of the fast ones;
- `strategies` for Hypothesis, and the text of `printer`.

`registry` finds an API by key or class, `framing` puts headers and sizes around messages, and `records` reads and
writes what Produce and Fetch carry, with `compression` and `varint` under it. What goes wrong is in `errors`: bad bytes
raise `DecodeError` and nothing else.
"""
