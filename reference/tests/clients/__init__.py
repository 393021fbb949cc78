"""Round trips with clients in other languages; each folder has one small program."""
