"""Planted wire defects: public bugs of Kafka's brokers and clients, each a switch of the setting `wire_defects`.

They stand beside the guards, and are not guards: off is how this broker is, on plants the bug. `table` lists them,
`lengths`, `requests`, `batches` and `answers` are what they do, `connection` is where they act. The fuzzer is measured
by how many it finds.
"""
