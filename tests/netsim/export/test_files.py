import os
import stat
from pathlib import Path

import pytest

from netsim.errors import NetsimError
from netsim.export.files import check_target, write_whole


def test_a_file_is_written_whole_in_a_new_folder(tmp_path: Path) -> None:
    target = tmp_path / "new" / "rows.csv"
    write_whole(target, "a\n")
    assert target.read_bytes() == b"a\n"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_whole(tmp_path / "link.csv", "new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_written_into_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "rows"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "a\n")
    assert os.read(reader, 10) == b"a\n"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    target.write_text("old")
    target.chmod(0o600)
    write_whole(target, "new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_failure_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NetsimError, match=r"cannot write '.*file/rows\.csv'"):
        write_whole(tmp_path / "file" / "rows.csv", "a")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the file name is empty"),
        (".", "is a folder"),
        ("file/rows.csv", "cannot write"),
        ("a" * 300, "cannot write"),
        ("loop", "cannot write"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_run(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(NetsimError, match=f"^--csv: .*{words}"):
        check_target(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused_before_the_run(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(NetsimError, match="no permission"):
        check_target(tmp_path / "rows.csv")


def test_a_new_file_in_new_folders_is_fine_and_nothing_is_made_yet(tmp_path: Path) -> None:
    assert check_target(tmp_path / "a" / "b" / "rows.csv") == tmp_path / "a" / "b" / "rows.csv"
    assert list(tmp_path.iterdir()) == []
