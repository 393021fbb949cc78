"""What a fuzzing run has reached, and what it sends next because of that."""
