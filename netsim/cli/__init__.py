"""The command line: one thin file a verb. The only room that prints and exits; it holds no physics."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells count it: 128 + SIGINT."""
