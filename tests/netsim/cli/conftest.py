from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    def sentence(self) -> str:
        """Return the one sentence of a refusal, after checking that it is one, with nothing on stdout."""
        assert self.out == ""
        assert "Traceback" not in self.err
        (line,) = self.err.splitlines()
        assert line.startswith("netsim: ")
        return line


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run one command line in this process; a string is split at spaces."""
    app = pytest.importorskip("netsim.cli.app", reason="the command line needs typer")

    def run(line: str, *more: str) -> Answer:
        code = app.answer([*line.split(), *more])
        told = capsys.readouterr()
        return Answer(code, told.out, told.err)

    return run
