"""A line of progress on stderr for what takes longer than two seconds, where stderr is a terminal."""

import sys
import threading
import time
from types import TracebackType

PATIENCE_S = 2.0
"""Silence before the first line."""
BEAT_S = 0.5


class Progress:
    """Show which of several pieces of work is going on, from a thread of its own, and wipe the line at the end.

    Parameters
    ----------
    total : int
        How many pieces there are.
    shown : bool or None
        Whether to show anything; by default, whether stderr is a terminal.
    """

    def __init__(self, total: int, *, shown: bool | None = None, patience_s: float = PATIENCE_S) -> None:
        self._total = total
        self._patience_s = patience_s
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._at = 0
        self._words = ""

    def step(self, words: str) -> None:
        """Say that the next piece of work begins."""
        self._at += 1
        self._words = words

    def at(self, place: int, words: str) -> None:
        """Say which piece of work is going on, by its number from 1, where several may end in any order."""
        self._at = place
        self._words = words

    def say(self, words: str) -> None:
        """Change the words of the present piece of work."""
        self._words = words

    def __enter__(self) -> "Progress":
        if self._shown:
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        began = time.monotonic()
        if self._done.wait(self._patience_s):
            return
        while True:
            line = f"netsim: {self._at} of {self._total}: {self._words} ({time.monotonic() - began:.0f} s)"
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            if self._done.wait(BEAT_S):
                break
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
