"""What is done about a failure of a fuzzing run: it is repeated, its cause is found, and the file is made small."""
