"""Quantities: what is read, what is written back, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import UnitError
from netsim.units import format_bytes, format_rate, format_time, parse_bytes, parse_rate, parse_time


@pytest.mark.parametrize(
    ("text", "size"),
    [("64 MiB", 67_108_864), ("1GB", 10**9), ("1GiB", 2**30), ("1.5 kB", 1500), ("0", 0), ("7 B", 7), ("1e3 B", 1000)],
)
def test_sizes_are_powers_of_1000_or_1024_by_their_unit(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), ("32M", 2**25), ("1G", 2**30), ("1k", 1024), ("2T", 2**41), ("1GB", 10**9)]
)
def test_a_bare_suffix_is_binary_where_nccl_tests_would_read_it(text, size):
    assert parse_bytes(text, bare_suffix=True) == size


@pytest.mark.parametrize(
    "text", ["64", "64 M", "64 Mb", "64 KB", "-1 B", "1.5 B", "nan B", "inf B", "", "B", "64 MiBs", "1e99 B"]
)
def test_a_size_without_a_known_unit_is_refused_with_the_value(text):
    with pytest.raises(UnitError, match=r"-b: "):
        parse_bytes(text, where="-b")


@pytest.mark.parametrize("value", [True, 1.5, None, -1, 2**63])
def test_only_whole_bytes_within_64_bits_are_sizes(value):
    with pytest.raises(UnitError):
        parse_bytes(value)


def test_400_gigabits_are_50_gigabytes():
    assert parse_rate("400 Gb/s") == parse_rate("50GB/s") == parse_rate("400Gbps") == 50e9


@pytest.mark.parametrize("text", ["450Gb", "450 GB", "0 GB/s", "-1 GB/s", "nan GB/s", "inf GB/s", "450", "1e400 GB/s"])
def test_a_rate_needs_a_unit_per_second_and_must_be_above_zero(text):
    with pytest.raises(UnitError):
        parse_rate(text)


def test_a_rate_without_per_second_is_told_what_was_meant():
    with pytest.raises(UnitError, match="did you mean 'Gb/s'"):
        parse_rate("450Gb")


@pytest.mark.parametrize(
    ("text", "seconds"), [("1us", 1e-6), ("8.25 us", 8.25e-6), ("1 µs", 1e-6), ("2 ms", 2e-3), ("0", 0.0), ("3 ns", 3e-9)]
)
def test_times_are_read_to_the_nearest_double(text, seconds):
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["1", "1 min", "-1 us", "nan s", "us"])
def test_a_time_needs_a_unit_and_must_not_be_negative(text):
    with pytest.raises(UnitError):
        parse_time(text)


@given(st.integers(0, 2**62))
def test_sizes_survive_being_written(size):
    assert parse_bytes(format_bytes(size)) == size


@given(st.floats(1e-3, 1e18, allow_subnormal=False))
def test_rates_survive_being_written(rate):
    assert parse_rate(format_rate(rate)) == rate


@given(st.floats(1e-12, 1e6))
def test_times_survive_being_written(seconds):
    assert parse_time(format_time(seconds)) == seconds
