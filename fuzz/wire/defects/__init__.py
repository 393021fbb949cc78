"""Planted wire defects: public bugs of Kafka brokers and clients; `node` runs a broker with them.

They are not guards: by default all are off. `table` lists them; `lengths`, `requests`, `batches`, `answers` and
`places` implement them, and `connection` applies them. The self-test of the fuzzer measures how many it finds.
"""
