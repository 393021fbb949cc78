"""Rule-based state machines (Hypothesis) that compare objects of the broker with simpler models of them."""
