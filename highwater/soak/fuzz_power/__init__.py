"""Measures which wrong brokers the wire fuzzer finds by an author who had not read it."""
