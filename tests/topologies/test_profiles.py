from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import ProfileError
from topologies.profiles import FAMILIES, Profile, family_of, load_profile, profile_names, write_profile

GOOD = """name = "mine"
family = "pcie"
line_rate = "16 GB/s"
effective_rate = "12 GB/s"
latency = "1 us"
date = "2026-11"
source = "measured: by hand"
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_that_travels_is_complete_and_named_after_its_file(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.family in FAMILIES
    assert profile.latency_source.startswith(("published", "measured", "assumed"))


@pytest.mark.parametrize(
    ("name", "count", "line", "effective"),
    [
        ("nvlink3", 12, 300e9, 240e9),  # 12 x 25, 12 x 20
        ("nvlink4", 18, 450e9, 370.8e9),  # 18 x 25, 18 x 20.6
        ("nvlink5", 18, 900e9, 721.8e9),  # 18 x 50, 18 x 40.1
        ("pcie3", 1, 15.75e9, 12e9),
        ("pcie4", 1, 31.5e9, 24e9),
        ("pcie5", 1, 63e9, 48e9),
        ("laptop_pcie4_x8", 1, 15.754e9, 13.45e9),
        ("ndr400", 1, 50e9, 47.9e9),  # 400 Gb/s are 50 GB/s
        ("efa100", 1, 12.5e9, 11.8e9),
    ],
)
def test_rates_are_the_published_ones(name: str, count: int, line: float, effective: float) -> None:
    profile = load_profile(name)
    assert profile.link("line", count).bandwidth_bytes_per_s == pytest.approx(line, rel=1e-12)
    assert profile.link("effective", count).bandwidth_bytes_per_s == pytest.approx(effective, rel=1e-12)


def test_a_link_shows_which_rate_it_uses_and_keeps_count_and_kind() -> None:
    link = load_profile("nvlink4").link(count=18)
    assert (link.kind, link.count) == ("nvlink4", 18)
    assert link.line_rate_bytes_per_s == 450e9 > link.bandwidth_bytes_per_s


def test_the_laptop_link_has_a_gap_and_no_latency() -> None:
    link = load_profile("laptop_pcie4_x8").link()
    assert (link.gap_s, link.latency_s) == (8.25e-6, 0.0)


def test_a_narrow_slot_has_its_share_of_the_rate() -> None:
    link = load_profile("pcie4").link(lanes=8)
    assert link.bandwidth_bytes_per_s == 12e9  # 24 x 8 / 16
    assert link.kind == "pcie4_x8"
    assert family_of(link.kind) == "pcie"


def test_lanes_mean_nothing_on_a_link_without_lanes() -> None:
    with pytest.raises(ProfileError, match="states no lanes"):
        load_profile("nvlink4").link(lanes=8)


@pytest.mark.parametrize("rate", ["", "peak", "Line"])
def test_an_unknown_rate_is_refused(rate: str) -> None:
    with pytest.raises(ProfileError, match="effective and line"):
        load_profile("nvlink4").link(rate)


@pytest.mark.parametrize("name", ["nvlink9", "", "..", "../server", "pcie5\n"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ProfileError):
        load_profile(name)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('latency = "1 us"\n', "", "latency missing"),
        ('source = "measured: by hand"\n', "", "source missing"),
        ("family", 'speed = "1 GB/s"\nfamily', "unknown key 'speed'"),
        ("12 GB/s", "17 GB/s", "above line_rate"),
        ("12 GB/s", "nan GB/s", "not a finite number"),
        ("12 GB/s", "-1 GB/s", "above zero"),
        ("12 GB/s", "12", "no unit"),
        ('"12 GB/s"', "12", "no unit"),
        ("1 us", "-1 us", "zero or more"),
        ("1 us", "inf us", "not a finite number"),
        ("pcie", "pci", "family is 'pci'"),
        ("2026-11", "yesterday", "date is 'yesterday'"),
        ("measured: by hand", "by hand", "must begin with"),
        ('"mine"', '"a b"', "profile name"),
        ("date", "lanes = 0\ndate", "lanes is 0"),
        ("date", "lanes = true\ndate", "whole number"),
        ("date", "date =", "not a TOML file"),
        ('date = "2026-11"', "date = 2026", "text in quotes"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence_with_the_place(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ProfileError, match=words) as caught:
        load_profile(path)
    assert path in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot read"):
        load_profile(str(tmp_path / "none.toml"))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no endless device")
def test_a_device_without_end_is_refused_at_once() -> None:
    with pytest.raises(ProfileError, match="larger than"):
        load_profile("/dev/zero")


quantity = st.floats(min_value=1e3, max_value=1e13)
seconds = st.just(0.0) | st.floats(min_value=1e-15, max_value=10)


@given(line=quantity, share=st.floats(min_value=0.01, max_value=1), latency=seconds, gap=seconds, note=st.text(max_size=20))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, line: float, share: float, latency: float, gap: float, note: str
) -> None:
    path = tmp_path_factory.mktemp("profiles") / "x.toml"
    profile = Profile("x", "nic", line, line * share, latency, "2026-11-30", "measured: here", gap_s=gap, note=note)
    write_profile(profile, path)
    assert load_profile(str(path)) == profile
    assert [entry.name for entry in path.parent.iterdir()] == ["x.toml"]


def test_a_profile_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "x.toml").mkdir()
    with pytest.raises(ProfileError, match="cannot write"):
        write_profile(load_profile("pcie5"), tmp_path / "x.toml")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.toml"]
