import pytest

from netsim.nccl.partition import cells, dealt, least_traffic
from netsim.nccl.version import Version

CELLS_8_KIB = Version(2, 28, 9)  # 16 KiB of traffic, which all-reduce counts twice


def sizes(part: int, channels: int, most: int) -> list[int]:
    """Return how many cells of 8 KiB each channel of an all-reduce has, rounded up."""
    return [-(-size // 8192) for _, size in cells(CELLS_8_KIB, "all_reduce", "simple", 4, part, channels, most)]


def test_a_rest_takes_one_channel_more_than_asked_for_if_there_is_one() -> None:
    # Nine cells and a byte for three channels: a third of the traffic is just three cells, so ten cells do not fit.
    part = 9 * 8192 + 1
    assert sizes(part, 3, 4) == [3, 3, 3, 1]
    assert sizes(part, 3, 3) == [3, 3, 4]  # the first as planned, the others share seven, the last takes what is over
    assert sizes(part, 1, 1) == [10]


def test_few_bytes_are_one_channel() -> None:
    assert cells(CELLS_8_KIB, "all_reduce", "simple", 4, 8192, 24, 24) == ((0, 8192),)
    assert cells(CELLS_8_KIB, "all_reduce", "simple", 4, 8193, 24, 24) == ((0, 8192), (8192, 1))


@pytest.mark.parametrize(
    ("collective", "protocol", "cell"),
    [
        ("all_reduce", "simple", 8192),  # 16384 / 2
        ("all_reduce", "ll", 2048),  # 16384 / 8
        ("all_gather", "ll128", 5472),  # 16384 / 3 = 5461.3, in whole 16 B
        ("reduce_scatter", "ll", 1376),  # 16384 / 12 = 1365.3
        ("broadcast", "simple", 16384),
        ("reduce", "ll", 4096),
    ],
)
def test_a_cell_carries_the_least_traffic(collective: str, protocol: str, cell: int) -> None:
    assert cells(CELLS_8_KIB, collective, protocol, 3, 24 * cell, 24, 24) == tuple((cell * n, cell) for n in range(24))


def test_the_least_traffic_grew_by_release() -> None:
    releases = [(2, 22), (2, 23), (2, 28), (2, 29), (2, 30)]
    assert [least_traffic(Version(*release)) for release in releases] == [512, 16384, 16384, 32768, 32768]


def test_whole_portions_are_dealt_one_a_channel_and_turn() -> None:
    # 7 portions of 10 and 3 bytes: channels 0 and 1 have three, the third two; the rest follows in the third turn.
    assert dealt(73, 3, 10) == ((0, 30), (30, 23), (53, 20))
    # With a grain of 4 the last turn's 13 bytes are cut into 8 and 5.
    assert dealt(73, 3, 10, 4) == ((0, 28), (28, 25), (53, 20))
    assert dealt(60, 3, 10, 4) == ((0, 20), (20, 20), (40, 20))
