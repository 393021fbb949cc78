"""Rule-based state machines: the broker's own objects against models that are simpler than they are."""
