"""Kafka's wire protocol: encode and decode messages, without I/O.

`schema` defines the field annotations, and `messages` the messages of all APIs. Derived from the annotations are

- `readers` and `writers`, the fast codec behind `codec.encode` and `codec.decode`;
- `constructs`, a slower description of the same formats, which tests use as the oracle of the fast codec;
- `strategies` for Hypothesis, and the text of `printer`.

`registry` finds an API by key or class, `framing` adds headers and sizes, and `records` encodes and decodes the record
batches of Produce and Fetch, with `compression` and `varint`. `errors` has the exceptions: invalid bytes raise
`DecodeError` and nothing else.
"""
