"""What a fit leaves is read by what uses it, keeps what was not fitted, and says where it comes from."""

import csv
import math
import tomllib
from pathlib import Path

import pytest

from netsim.nccl import gpus
from scenarios.fit_files import command, constant_us, fitted_topology, value_words, write_files
from scenarios.fit_parameters import CALL, TOPOLOGY, Parameter, component_file, stated
from scenarios.fit_search import Fitted, Outcome
from scenarios.fit_series import Series
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec
from topologies.profiles import load_profile

NAME = 'rack "7", node \\ 3'


def fitted(file: str, *keys: str, factor: float = 1.1, seen: bool = True, start_s: float = 0.0) -> Fitted:
    interval = (factor * math.exp(-0.1), factor * math.exp(0.1))
    return Fitted(Parameter(file, keys, start_s=start_s), factor, interval, 0.1, seen)


def outcome(*found: Fitted) -> Outcome:
    return Outcome(found, [], [], 3)


def series(machine: Machine, **more: object) -> list[Series]:
    spec = Spec(machine, "all_reduce", 0, **more)  # type: ignore[arg-type]
    return [Series("a.log", spec, 2, ((8, 10.0), (2**20, 30.0)))]


def test_files_are_read_by_what_uses_them(tmp_path: Path) -> None:
    found = outcome(
        fitted("nvlink4", "latency_ll"), fitted("nvlink4", "effective_rate"), fitted("hopper", "ll.start", "ll128.start")
    )
    files = write_files(found, series(Machine("hgx-h100"), protocol="auto"), tmp_path / "new", NAME)
    assert [path.name for path in files] == ["hopper.toml", "nvlink4.toml"]
    link = load_profile(str(files[1]))
    assert dict(link.protocols.latency_s)["ll"] == pytest.approx(449.9e-9)  # type: ignore[union-attr]
    assert link.effective_rate_bytes_per_s == pytest.approx(22.66e9)
    assert gpus.costs(str(files[0]), "ll").start_s == pytest.approx(1.1 * gpus.costs("hopper", "ll").start_s)
    assert gpus.costs(str(files[0]), "ll128").start_s == pytest.approx(1.1 * gpus.costs("hopper", "ll128").start_s)


def test_sources_say_what_is_measured_and_keep_what_the_rest_comes_from(tmp_path: Path) -> None:
    found = outcome(fitted("nvlink4", "latency_ll"), fitted("nvlink4", "share_ll"))
    (path,) = write_files(found, series(Machine("hgx-h100"), protocol="auto"), tmp_path, NAME)
    table, before = (tomllib.loads(one.read_text(encoding="utf-8")) for one in (path, component_file("nvlink4")))
    assert table["protocol_source"].startswith(f"measured: fitted by simulation to {NAME} (1 log, netsim ")
    assert table["protocol_source"].endswith(f": latency_ll, share_ll; the rest {before['protocol_source']}")
    # What was not fitted keeps its own.
    assert (table["source"], table["latency_source"]) == (before["source"], before["latency_source"])
    assert table["date"] != before["date"]
    assert 'latency_ll = "449.9 ns"  # 407.1 ns to 497.2 ns\n' in path.read_text(encoding="utf-8")


def test_a_fit_upon_a_fit_says_both(tmp_path: Path) -> None:
    (first,) = write_files(outcome(fitted("hopper", "ll.start")), series(Machine("hgx-h100")), tmp_path, "one")
    again = Fitted(Parameter("hopper", ("simple.start",), source=first), 1.0, (0.9, 1.1), 0.1)
    (second,) = write_files(outcome(again), series(Machine("hgx-h100")), tmp_path, "two")
    told = gpus.read_costs(second)["source"].split("; the rest ")
    assert [words.split(" (")[0].split()[-1] for words in told[:2]] == ["two", "one"]
    assert [words.rpartition(": ")[2] for words in told[:2]] == ["simple.start", "ll.start"]


def test_a_fit_into_the_file_it_starts_from_tells_its_start(tmp_path: Path) -> None:
    (first,) = write_files(outcome(fitted("hopper", "ll.start")), series(Machine("hgx-h100")), tmp_path, "one")
    again = Fitted(Parameter("hopper", ("ll.start",), source=first), 2.0, (1.9, 2.1), 0.1)
    before = again.parameter.before()
    (second,) = write_files(outcome(again), series(Machine("hgx-h100")), tmp_path, "two")
    assert second == first
    assert gpus.costs(str(second), "ll").start_s == pytest.approx(2.2 * gpus.costs("hopper", "ll").start_s)
    (row,) = csv.DictReader((tmp_path / "parameters.csv").read_text(encoding="utf-8").splitlines())
    assert again.parameter.before() == before
    numbers = [float(row[name].split()[0]) for name in ("before", "after", "low", "high")]
    assert numbers == pytest.approx([factor * float(before.split()[0]) for factor in (1.0, 2.0, 1.9, 2.1)], rel=1e-3)


def test_the_command_keeps_the_options_of_a_nic() -> None:
    (one,) = series(Machine("hgx-h100", 2, "efa100:nics=8,ports=4"), protocol="auto")
    words = command(one, outcome(), [component_file("efa100")])
    assert f"--nic {component_file('efa100')}:nics=8,ports=4 --nccl-version" in words
    assert "--profile" not in words


def test_the_command_names_only_files_of_what_its_run_uses() -> None:
    (one,) = series(Machine("hgx-h100"), protocol="auto")
    files = [component_file(name) for name in ("ampere", "hopper", "nvlink3", "nvlink4")]
    words = command(one, outcome(), files)
    assert f"--profile {files[3]} --nccl-version" in words
    assert f"--kernel-costs {files[1]}" in words


def test_a_profile_without_a_source_of_latency_gets_one(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    text = component_file("pcie4").read_text(encoding="utf-8")
    own.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("latency_source")))
    found = Fitted(Parameter("pcie4", ("latency",), source=own), 2.0, (1.9, 2.1), 0.1)
    (path,) = write_files(outcome(found), series(Machine("pcie-pair")), tmp_path / "out", "mine")
    assert load_profile(str(path)).latency_s == pytest.approx(500e-9)
    assert load_profile(str(path)).latency_source.startswith("measured: fitted by simulation to mine")


def test_what_no_time_depends_on_is_written_nowhere_but_in_the_table(tmp_path: Path) -> None:
    found = outcome(fitted("hopper", "ll.start", seen=False), fitted(CALL, "constant", start_s=5e-6))
    assert write_files(found, series(Machine("ideal-switch:4@10GB/s,1us")), tmp_path, "mine") == []
    rows = list(csv.DictReader((tmp_path / "parameters.csv").read_text(encoding="utf-8").splitlines()))
    before = gpus.costs("hopper", "ll").start_s * 1e6
    assert [(row["parameter"], row["before"], row["after"], row["seen"]) for row in rows] == [
        ("hopper:ll.start", f"{before:.4g} us", f"{1.1 * before:.4g} us", "False"),
        ("call:constant", "5 us", "5.5 us", "True"),
    ]


def test_numbers_are_written_in_units_that_suit_them(tmp_path: Path) -> None:
    own = tmp_path / "tcpxo200.toml"
    own.write_text(stated(component_file("tcpxo200").read_text(encoding="utf-8"), "latency_ll", '"26850 ns"'))
    hop = Parameter("tcpxo200", ("latency_ll",), source=own)
    assert (value_words(hop, 1.0), value_words(hop, 0.01)) == ("26.85 us", "268.5 ns")


def test_the_figures_of_a_study_graph_are_in_the_command(tmp_path: Path) -> None:
    found = outcome(
        fitted(TOPOLOGY, "latency", factor=1.98),
        fitted(TOPOLOGY, "rate", factor=0.5),
        fitted(CALL, "constant", start_s=5e-6),
    )
    topology = "ideal-switch:8@10GB/s,1us"
    assert fitted_topology(topology, found) == "ideal-switch:8@5GB/s,1.98us"
    assert value_words(found.fitted[0].parameter, 1.98, topology) == "1.98 us"
    assert constant_us(found) == pytest.approx(5.5)
    (one,) = series(Machine(topology, gpus_per_node=4), algorithm="ring")
    words = (
        "netsim perf all_reduce --topology ideal-switch:8@5GB/s,1.98us -g 4 --algo ring --proto ideal -b 8 -e 1048576 -f 2"
    )
    assert command(one, found, []) == words


def test_the_command_says_all_that_made_the_run() -> None:
    machine = Machine("hgx-h100", 2, "ndr400", "rails", 4, gpudirect=False, rate="line", profile="nvlink4,pcie5")
    told = NcclOptions("2.21.5", ("NCCL_DEBUG=INFO", "NCCL_ALGO=Ring"), launch="stream", datatype="half", operator="max")
    (one,) = series(machine, protocol="ll", nccl=told)
    words = command(one, outcome(), [component_file("hopper"), component_file("nvlink4")])
    assert words == (
        "netsim perf all_reduce --topology hgx-h100 --nodes 2 --nic ndr400 --fabric rails -g 4 --no-gpudirect --rate line "
        f"--profile pcie5,{component_file('nvlink4')} --proto ll --nccl-version 2.21.5 --nccl-env NCCL_ALGO=Ring "
        f"--launch stream -d half -o max --kernel-costs {component_file('hopper')} -b 8 -e 1048576 -f 2"
    )
