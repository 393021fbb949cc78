"""Planted wire defects: public bugs of Kafka brokers and clients; the setting `wire_defects` switches them on.

They are not guards: by default all are off. `table` lists them; `lengths`, `requests`, `batches`, `answers` and
`places` implement them, and `connection` applies them. The self-test of the fuzzer measures how many it finds.
"""
