from collections.abc import Callable
from pathlib import Path

import pytest

LINE = "plot all_reduce --topology ideal-switch:8@450GB/s,1us -b 4K -e 64M --algos"


def test_a_picture_with_its_crossings_is_written(ask: Callable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answer = ask(LINE, "double_binary_tree,ring", "-o", str(tmp_path / "picture.svg"))
    assert answer.code == 0
    assert "wrote 2 curves, 1 crossing" in answer.err
    text = (tmp_path / "picture.svg").read_text()
    # design.md: the tree in 64 chunks is the faster one until 19.8 MB
    for words in ("double_binary_tree", "ring", "19.8 MB: ring", "bus bandwidth (GB/s)", "time (us)", "not NCCL"):
        assert words in text


def test_one_algorithm_has_no_crossing(ask: Callable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "1 curve, 0 crossings" in ask(LINE, "auto", "-o", str(tmp_path / "picture.png")).err
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_measured_points_are_laid_over(ask: Callable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "mine.csv").write_text("size_bytes,time_us\n4096,10\n8192,11\n")
    picture = tmp_path / "picture.svg"
    answer = ask(LINE, "ring", "--measured", str(tmp_path / "mine.csv"), "-o", str(picture))
    assert answer.code == 0
    assert "measured: mine" in picture.read_text()


def test_the_same_question_gets_the_same_bytes(ask: Callable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "two.svg", "one.png", "two.png"):
        ask(LINE, "ring", "-o", str(tmp_path / name))
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_without_matplotlib_a_sentence_says_how_to_get_it(ask: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else found(name, *rest)
    )
    answer = ask(LINE, "ring", "-o", "picture.svg")
    assert answer.code == 2
    assert "pip install 'netsim-collectives[plot]'" in answer.sentence()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("ring -o picture.jpg", "ends in '.jpg'; accepted are .svg, .png and .pdf"),
        ("ring -o picture", "'picture' has no ending that tells the kind of picture; accepted are .svg"),
        (", -o picture.svg", "has an empty name"),
        ("ring,,flat -o picture.svg", "has an empty name"),
        ("ring -o nowhere/picture.svg", "there is no folder 'nowhere'"),
        ("ring -o picture.svg --measured /nowhere.csv", "/nowhere.csv"),
        ("ring,ring -o picture.svg", "different"),
    ],
)
def test_a_wrong_question_gets_one_sentence(more: str, words: str, ask: Callable, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    answer = ask(f"{LINE} {more}")
    assert answer.code == 2
    assert words in answer.sentence()
    assert list(tmp_path.iterdir()) == []


def test_a_log_of_nccl_tests_is_laid_over_as_it_is(ask: Callable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    row = "4096 1024 float sum -1 10.00 0.41 0.72 0 9.90 0.41 0.72 0"
    (tmp_path / "run.log").write_text(f"# nThread 1 nGpus 8\n  {row}\n")
    picture = tmp_path / "picture.svg"
    assert ask(LINE, "ring", "--measured", str(tmp_path / "run.log"), "-o", str(picture)).code == 0
    assert "measured: run" in picture.read_text()
