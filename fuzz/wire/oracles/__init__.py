"""What a broker must do for any input.

`responses` judges one response, `malformed` decides whether a request must be refused. `leaks`, `stalls` and `states`
watch the broker during a whole run.
"""
