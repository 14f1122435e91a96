"""Keep the doctest collector away from the program that the parity test starts: it imports torch, which may be absent."""

collect_ignore = ["gloo_ranks.py"]
