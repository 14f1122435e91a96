"""What is fitted follows from what the runs use."""

from pathlib import Path

import pytest

from netsim.errors import ScenarioError
from scenarios.fit_choice import chosen, components
from scenarios.fit_parameters import stated
from scenarios.fit_series import Series
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec


def series(machine: Machine, protocol: str = "auto", **options: object) -> list[Series]:
    spec = Spec(machine, "all_reduce", 0, protocol=protocol, nccl=NcclOptions(**options))  # type: ignore[arg-type]
    return [Series("a.log", spec, 2, ((1024, 10.0),))]


def names(found: tuple[list, list]) -> list[str]:
    return [one.name for one in found[0]]


def test_a_server_uses_its_generation_and_the_links_between_its_gpus() -> None:
    used = components(series(Machine("hgx-h100")))
    assert used.names == ("hopper", "nvlink4")
    found = names(chosen(series(Machine("hgx-h100"))))
    assert {"hopper:ll.start", "hopper:launch.call", "nvlink4:latency_ll", "nvlink4:effective_rate"} <= set(found)
    # Its file has none of Simple's.
    assert "nvlink4:share_simple" not in found


def test_servers_use_their_network_too() -> None:
    used = components(series(Machine("hgx-h100", nodes=2, nic="ndr400")))
    assert {"nvlink", "nic"} <= {family for family, _ in used.links.values()}
    found, _ = chosen(series(Machine("hgx-h100", nodes=2, nic="ndr400")))
    # A hop over a network is known less well than one inside a server.
    width = {one.name: one.width for one in found}
    assert width["ndr400:latency_ll"] > width["nvlink4:latency_ll"]


def test_what_only_networks_have_is_fitted_by_default() -> None:
    found = names(chosen(series(Machine("hgx-h100", nodes=2, nic="efa100:nics=8,ports=4"))))
    assert {"efa100:spread", "efa100:proxy_ll", "hopper:nvls.tree"} <= set(found)


def test_a_textbook_run_has_a_line_and_a_constant() -> None:
    assert names(chosen(series(Machine("ideal-switch:4@1GB/s,1us"), "ideal"))) == [
        "topology:latency",
        "topology:rate",
        "call:constant",
    ]
    found = names(chosen(series(Machine("hgx-h100"), "ideal")))
    assert found == ["nvlink4:latency", "nvlink4:effective_rate", "call:constant"]


def test_files_of_the_user_are_where_a_fit_starts(repository: Path, tmp_path: Path) -> None:
    costs = tmp_path / "mine.toml"
    text = (repository / "netsim" / "nccl" / "gpus_data" / "hopper.toml").read_text(encoding="utf-8")
    costs.write_text(stated(text, "ll.start", '"5 us"'), encoding="utf-8")
    link = tmp_path / "nvlink4.toml"
    link.write_text((repository / "topologies" / "profiles_data" / "nvlink4.toml").read_text(encoding="utf-8"))
    found, _ = chosen(series(Machine("hgx-h100", profile=str(link)), kernel_costs=str(costs)))
    sources = {one.file: one.source for one in found}
    assert sources == {"hopper": costs, "nvlink4": link}
    assert found[0].before() == "5 us"


def test_the_user_names_what_is_fitted() -> None:
    found, _ = chosen(series(Machine("hgx-h100")), ["hopper:ll.send+ll.recv", "nvlink4:latency"])
    assert [(one.file, one.keys) for one in found] == [("hopper", ("ll.send", "ll.recv")), ("nvlink4", ("latency",))]
    # As calibration.toml has it for rates of LL, and half where it lists nothing.
    assert [one.width for one in found] == [0.3, 0.5]


@pytest.mark.parametrize("name", ["ndr400", "mine"])
def test_a_nic_of_a_file_is_where_a_fit_starts(repository: Path, tmp_path: Path, name: str) -> None:
    own = tmp_path / "card.toml"
    text = (repository / "topologies" / "profiles_data" / "ndr400.toml").read_text(encoding="utf-8")
    own.write_text(stated(stated(text, "latency_ll", '"9 us"'), "name", f'"{name}"'), encoding="utf-8")
    (one,), _ = chosen(series(Machine("hgx-h100", 2, f"{own}:nics=4")), [f"{name}:latency_ll"])
    assert (one.source, one.before()) == (own, "9 us")


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["nvlink4:latency_ll", "nvlink4:latency_ll"], "nvlink4:latency_ll"),
        (["hopper:ll.send+ll.recv", "hopper:ll.recv"], "hopper:ll.recv"),
        (["hopper:ll.send+ll.send"], "hopper:ll.send"),
    ],
)
def test_a_number_that_is_named_twice_is_refused(names: list[str], word: str) -> None:
    with pytest.raises(ScenarioError, match=f"{word} is named twice; every number is fitted once"):
        chosen(series(Machine("hgx-h100")), names)


@pytest.mark.parametrize(
    ("name", "file"),
    [("../evil", "mine"), ("my gpu", "mine"), ("call", "mine"), ("nvlink4", "mine"), ("hopper-x", "hopper-x")],
)
def test_a_name_that_is_none_of_a_file_gives_way_to_the_files(
    repository: Path, tmp_path: Path, name: str, file: str
) -> None:
    costs = tmp_path / "mine.toml"
    text = (repository / "netsim" / "nccl" / "gpus_data" / "hopper.toml").read_text(encoding="utf-8")
    costs.write_text(stated(text, "name", f'"{name}"'), encoding="utf-8")
    assert components(series(Machine("hgx-h100"), kernel_costs=str(costs))).names[0] == file


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hopper", "'hopper' is no parameter; write COMPONENT:KEY"),
        ("hopper:", "'hopper:' is no parameter"),
        ("ampere:ll.start", "'ampere' is used by none of these runs; they use hopper, nvlink4"),
        ("hopper:ll.speed", "hopper has no number ll.speed; it has ll.start"),
        ("nvlink4:source", "nvlink4 has no number source; it has line_rate"),
        ("topology:rate", "'topology' is used by none of these runs"),
    ],
)
def test_a_name_that_is_none_is_one_sentence(name: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        chosen(series(Machine("hgx-h100")), [name])


def test_links_without_a_profile_are_said_to_stay(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "nodes:\n  a: {kind: gpu}\n  b: {kind: gpu}\n"
        "links:\n  - {between: [a, b], bandwidth: 10 GB/s, latency: 1 us, kind: wire}\n",
        encoding="utf-8",
    )
    found, remarks = chosen(series(Machine(str(own)), "ideal"))
    assert names((found, remarks)) == ["call:constant"]
    assert remarks == ["not fitted: links of the kind wire, which come from no profile"]
