"""Models of what Kafka promises, with which cases compare whole replies after many mixed requests.

A model is written from the protocol, not from a broker. Where the protocol leaves a choice (how many bytes a Fetch
returns, which error of two that apply), it accepts each permitted answer.
"""
