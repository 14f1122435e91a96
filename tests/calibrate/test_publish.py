from pathlib import Path

import pytest

import netsim
from calibrate.fit import fit
from calibrate.publish import profile_of
from calibrate.samples import Sample, SeriesKey, parse_samples
from netsim.errors import NetsimError, ProfileError
from topologies import build
from topologies.profiles import load_profile, write_profile

KEY = SeriesKey("copy", "h2d", True)
PAIR = """\
name: host and GPU
nodes:
  host: {{kind: gpu}}
  gpu: {{kind: gpu}}
links:
  - {{from: host, to: gpu, profile: {profile}}}
  - {{from: gpu, to: host, profile: {profile}}}
"""


@pytest.fixture
def copies(repository: Path):
    samples = parse_samples((repository / "tests" / "data" / "h200_copies.csv").read_text(encoding="utf-8"), "here")
    return fit(KEY, samples.series()[KEY]), samples.facts


def test_what_is_published_is_loaded_with_the_same_figures(copies, tmp_path: Path) -> None:
    found, facts = copies
    made = profile_of(found, facts, name="mine", line_rate_bytes_per_s=63e9, lanes=16, samples="h200_copies.csv")
    write_profile(made, tmp_path / "mine.toml")
    assert load_profile(str(tmp_path / "mine.toml")) == made
    # Rounded to five digits.
    assert made.gap_s == pytest.approx(found.best.gap_s, rel=1e-4)
    assert made.floor_s == pytest.approx(found.best.floor_s, rel=1e-4)
    assert made.effective_rate_bytes_per_s == pytest.approx(found.best.bandwidth_bytes_per_s, rel=1e-4)
    assert made.latency_s == 0
    assert "NVIDIA H200, driver 580.159.04, cuda 13.0, nccl 2.28.9; samples h200_copies.csv" in made.source


def test_a_link_of_the_profile_takes_the_measured_times_within_5_percent(copies, tmp_path: Path) -> None:
    found, facts = copies
    write_profile(profile_of(found, facts, name="mine", line_rate_bytes_per_s=63e9, lanes=16), tmp_path / "mine.toml")
    (tmp_path / "pair.yaml").write_text(PAIR.format(profile=tmp_path / "mine.toml"), encoding="utf-8")
    topology = build(str(tmp_path / "pair.yaml"))
    for size, time_s in zip(found.sizes, found.measured_s, strict=True):
        assert netsim.time("broadcast", size, topology, algorithm="flat") == pytest.approx(time_s, rel=0.05)


def test_what_the_cpu_waited_for_is_a_latency() -> None:
    seen = SeriesKey("copy_sync", "h2d", True)
    found = fit(seen, [Sample(seen, 4**power, 22e-6 + 4**power / 13e9) for power in range(1, 14)])
    made = profile_of(found, {"date": "2026"}, name="seen", line_rate_bytes_per_s=15.754e9, lanes=8)
    assert made.latency_s == pytest.approx(22e-6, rel=1e-4)
    assert made.gap_s == 0


def test_what_a_profile_needs_is_asked_for(copies) -> None:
    found, facts = copies
    with pytest.raises(NetsimError, match="no date; a profile needs one: write a line such as '# date: 2026-11-29'"):
        profile_of(found, {}, name="mine", line_rate_bytes_per_s=63e9, lanes=16)
    with pytest.raises(NetsimError, match="no width of the link, .* give --lanes"):
        profile_of(found, facts, name="mine", line_rate_bytes_per_s=63e9)
    with pytest.raises(ProfileError, match="profile name 'no name'"):
        profile_of(found, facts, name="no name", line_rate_bytes_per_s=63e9, lanes=16)
