import pytest

from netsim.fabric import Link
from netsim.nccl.speeds import nvlink_GBps, pcie_GBps, search_speeds, socket_GBps
from netsim.nccl.version import Version

NOW = Version(2, 28, 9)


def link(kind: str, count: int = 1, line: float | None = None, rate: float = 1e9) -> Link:
    return Link(0.0, rate, count=count, kind=kind, line_rate_bytes_per_s=line)


@pytest.mark.parametrize(
    ("capability", "version", "each"),
    [
        *((60, NOW, 18.0), (70, NOW, 20.0), (80, NOW, 20.0), (86, NOW, 12.0), (90, NOW, 20.6), (100, NOW, 40.1)),
        *((103, NOW, 40.1), (90, Version(2, 19, 3), 20.0), (90, Version(2, 20, 5), 20.6), (100, Version(2, 27, 3), 40.0)),
    ],
)
def test_an_nvlink_carries_what_its_generation_does(capability: int, version: Version, each: float) -> None:
    assert nvlink_GBps(link("nvlink4", count=18), capability, version) == pytest.approx(18 * each)


def test_links_of_another_make_carry_what_the_topology_says() -> None:
    assert nvlink_GBps(link("xgmi3", rate=37e9), 90, NOW) == 37.0


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        *(("pcie1", 3.0), ("pcie2", 6.0), ("pcie3", 12.0), ("pcie4", 24.0), ("pcie5", 48.0), ("pcie6", 96.0)),
        *(("pcie4_x8", 12.0), ("laptop_pcie4_x8", 12.0), ("pcie5_x4", 12.0), ("pcie5_h200_copy", 48.0), ("local", 5000.0)),
    ],
)
def test_a_pcie_link_carries_width_times_rate_over_80(kind: str, rate: float) -> None:
    assert pcie_GBps(link(kind)) == rate


def test_a_pcie_link_of_unknown_kind_is_told_by_its_line_rate() -> None:
    # 63.0 GB/s is 16 lanes of Gen5, 7.88 four of Gen4 (6 GB/s); 20 GB/s is none, 20 x 16/21 = 15.2.
    assert pcie_GBps(link("mine", line=63e9)) == 48.0
    assert pcie_GBps(link("mine", line=7.88e9)) == 6.0
    assert pcie_GBps(link("mine", line=20e9)) == pytest.approx(15.238, abs=1e-3)
    assert pcie_GBps(link("mine", rate=7e9)) == 7.0


@pytest.mark.parametrize(
    ("arch", "vendor", "model", "version", "rate"),
    [
        *(("x86_64", "GenuineIntel", 0x4F, NOW, 6.0), ("x86_64", "GenuineIntel", 0x55, NOW, 10.0)),
        *(("x86_64", "GenuineIntel", 0x55, Version(2, 17, 1), 9.0), ("x86_64", "GenuineIntel", 0x8F, NOW, 22.0)),
        *(("x86_64", "GenuineIntel", 0xAD, NOW, 22.0), ("x86_64", "GenuineIntel", 0xCF, NOW, 40.0)),
        *(("x86_64", "GenuineIntel", 0xCF, Version(2, 25, 1), 10.0), ("x86_64", "AuthenticAMD", 1, NOW, 16.0)),
        *(("arm64", "", 0, NOW, 6.0), ("ppc64", "", 0, NOW, 32.0)),
        *(("x86_64", "CentaurHauls", 0, NOW, 6.0), ("x86_64", "  Shanghai  ", 0x5B, NOW, 9.0)),
    ],
)
def test_sockets_exchange_what_their_kind_does(arch: str, vendor: str, model: int, version: Version, rate: float) -> None:
    assert socket_GBps(arch, vendor, model, version) == rate


def test_speeds_came_with_their_releases() -> None:
    assert 50 not in search_speeds(90, False, Version(2, 18, 5))
    assert 22 not in search_speeds(90, True, Version(2, 18, 5))
    assert 11 not in search_speeds(90, False, Version(2, 20, 5))
    assert 45 not in search_speeds(100, False, NOW)
    assert 45 in search_speeds(100, False, Version(2, 29, 2))
    assert search_speeds(100, True, Version(2, 30, 3))[:4] == (96, 86, 80, 48)
    assert search_speeds(100, True, NOW)[:3] == (96, 48, 45.1)
    # Before 2.25 nothing was newer than Hopper.
    assert search_speeds(100, False, Version(2, 24, 3)) == search_speeds(90, False, Version(2, 24, 3))


def test_speeds_fall() -> None:
    for capability in (70, 90, 100):
        for several in (False, True):
            speeds = search_speeds(capability, several, Version(2, 30, 7))
            assert list(speeds) == sorted(set(speeds), reverse=True)
