"""Round trips with clients of other languages; each folder holds one small program."""
