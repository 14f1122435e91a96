import csv
import tomllib
from functools import lru_cache
from pathlib import Path

import pytest

import scenarios.hardware as hardware
import topologies
from netsim.errors import ScenarioError
from netsim.nccl.environment import read_assignments
from netsim.nccl.version import Version
from netsim.schedule.collective import COLLECTIVES
from scenarios.hardware import RULES, UnmappedError, set_up
from scenarios.nccl import NcclOptions
from scenarios.tables import Entry, read_index

HOST = {"collective": "all_reduce", "gpu": "H100 SXM", "n_gpus": "8", "n_nodes": "1", "hw_class": "mine", "inter_link": "-"}
PAIR = HOST | {"n_gpus": "16", "n_nodes": "2", "inter_link": "8x400G InfiniBand NDR"}


def entry(columns: dict[str, str] = HOST, **cells: str) -> Entry:
    return Entry(
        Path("table.csv"), {"nccl_version": "2.28.9", "algo": "auto", "proto": "auto"} | columns | cells, "index.csv:2"
    )


def environment(**cells: str) -> tuple[str, ...]:
    return set_up(entry(**cells)).options.environment


def rules() -> list[dict]:
    return tomllib.loads(RULES.read_text(encoding="utf-8"))["rule"]


@pytest.fixture
def ruled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Use rules of a test's own."""
    target = tmp_path / "hardware.toml"

    def use(text: str) -> None:
        target.write_text(text)
        monkeypatch.setattr(hardware, "RULES", target)
        monkeypatch.setattr(hardware, "_rules", lru_cache(maxsize=1)(hardware._rules.__wrapped__))

    return use


def test_a_host_needs_no_network() -> None:
    machine = set_up(entry()).machine
    assert (machine.topology, machine.nodes, machine.nic, machine.gpus_per_node) == ("hgx-h100", 1, None, 8)


def test_hosts_are_joined_by_their_network() -> None:
    machine = set_up(entry(PAIR)).machine
    assert (machine.nodes, machine.nic, machine.gpus_per_node) == (2, "ndr400", 8)


def test_a_later_rule_goes_over_an_earlier_one_and_keeps_what_it_does_not_name(ruled) -> None:
    ruled("""
        [[rule]]
        when = { gpu = "*H100*" }
        topology = "hgx-h100"
        nccl_version = "2.21.5"
        [[rule]]
        when = { hw_class = "mine" }
        topology = "hgx-h200"
    """)
    found = set_up(entry(nccl_version="unknown"))
    assert (found.machine.topology, found.options.version) == ("hgx-h200", "2.21.5")


def test_variables_of_all_rules_that_fit_are_told(ruled) -> None:
    ruled("""
        [[rule]]
        when = { gpu = "*" }
        topology = "hgx-h100"
        nccl_env = ["NCCL_CROSS_NIC=1"]
        [[rule]]
        when = { hw_class = ["other", "mine"] }
        nccl_env = ["NCCL_NVLS_ENABLE=0"]
    """)
    assert environment() == ("NCCL_CROSS_NIC=1", "NCCL_NVLS_ENABLE=0")


def test_a_rule_fits_whatever_the_case_and_only_if_all_its_columns_do(ruled) -> None:
    ruled("""
        [[rule]]
        when = { gpu = "*h100*", hw_class = "MINE" }
        topology = "hgx-h100"
    """)
    assert set_up(entry()).machine.topology == "hgx-h100"
    with pytest.raises(UnmappedError):
        set_up(entry(hw_class="other"))


def test_a_rule_that_says_what_no_rule_may_is_refused(ruled) -> None:
    ruled("""
        [[rule]]
        when = { gpu = "*" }
        topolgy = "hgx-h100"
    """)
    with pytest.raises(ScenarioError, match="rule 1 has topolgy; accepted are topology, nic"):
        set_up(entry())


def test_a_gpu_without_a_rule_is_told() -> None:
    with pytest.raises(UnmappedError, match="no rule of hardware.toml has a topology for 'Abacus' of class 'mine'"):
        set_up(entry(gpu="Abacus"))


def test_a_network_without_a_rule_is_told() -> None:
    with pytest.raises(
        UnmappedError, match="no rule of hardware.toml has a NIC for 'two cans and a string' of class 'mine'"
    ):
        set_up(entry(PAIR, inter_link="two cans and a string"))


def test_what_is_not_covered_says_why() -> None:
    with pytest.raises(UnmappedError, match="the times are not NCCL's"):
        set_up(entry(nccl_version="mscclpp"))


def test_a_row_that_makes_no_sense_is_refused_with_its_place() -> None:
    with pytest.raises(ScenarioError, match="index.csv:2: 9 GPUs do not spread evenly over 2 nodes"):
        set_up(entry(PAIR, n_gpus="9"))


@pytest.mark.parametrize(("gpus", "hosts", "racks"), [(8, 2, 1), (72, 18, 1), (144, 36, 2), (128, 32, 2), (1440, 360, 20)])
def test_hosts_of_one_nvlink_domain_are_one_server(gpus: int, hosts: int, racks: int) -> None:
    machine = set_up(entry(PAIR, gpu="GB200", n_gpus=str(gpus), n_nodes=str(hosts))).machine
    assert (machine.nodes, machine.gpus_per_node) == (racks, gpus // racks)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("NVLS quiet; NCCL_BUFFSIZE=524288; more", ("NCCL_BUFFSIZE=524288",)),
        ("NCCL_MIN_NCHANNELS=NCCL_MAX_NCHANNELS=8", ("NCCL_MIN_NCHANNELS=8", "NCCL_MAX_NCHANNELS=8")),
        ("NCCL_BUFFSIZE=8 MiB, set by a plugin", ("NCCL_BUFFSIZE=8388608",)),
        ("NCCL_P2P_DISABLE=1 (through host memory)", ("NCCL_P2P_DISABLE=1",)),
        ("(NCCL_P2P_LEVEL=SYS)", ("NCCL_P2P_LEVEL=SYS",)),
        ("set NCCL_P2P_DISABLE=1: slow", ("NCCL_P2P_DISABLE=1",)),
        ("NCCL_ALGO=Ring,Tree, two of them", ("NCCL_ALGO=Ring,Tree",)),
        ("NCCL_NTHREADS=128,NCCL_CROSS_NIC=1", ("NCCL_NTHREADS=128", "NCCL_CROSS_NIC=1")),
        ("NCCL_P2P_LEVEL allows SYS; UCX_TLS=rc", ()),
        ("run with NCCL_NTHREADS=256", ("NCCL_NTHREADS=256",)),
        ("320 GB/s is low; 391 with NCCL_MIN_CTAS=24 and 2 QPs per connection", ()),
        ("MIN_CTAS=24, NVLSTREE_MAX_CHUNKSIZE=512 KiB", ("NCCL_MIN_CTAS=24", "NCCL_NVLSTREE_MAX_CHUNKSIZE=524288")),
    ],
)
def test_variables_are_read_out_of_notes(words: str, told: tuple[str, ...]) -> None:
    assert environment(notes=words) == told


def test_queue_pairs_are_read_where_it_says_what_was_forced() -> None:
    assert environment(algo="Ring (forced), MIN_CTAS=24, 2 QPs") == ("NCCL_MIN_CTAS=24", "NCCL_IB_QPS_PER_CONNECTION=2")


@pytest.mark.parametrize("column", ["algo", "notes", "intra_link", "inter_link"])
def test_variables_may_stand_in_any_column_of_words(column: str) -> None:
    assert environment(**{column: "auto; NCCL_NTHREADS=256"}) == ("NCCL_NTHREADS=256",)


def test_a_variable_that_nccl_does_not_have_is_remarked_upon() -> None:
    found = set_up(entry(notes="NCCL_BUFSIZE=1; NCCL_NTHREADS=128"))
    assert found.options.environment == ("NCCL_NTHREADS=128",)
    (remark,) = found.remarks
    assert remark == "left out: index.csv:2: 'NCCL_BUFSIZE' is no variable of NCCL (did you mean NCCL_BUFFSIZE?)"


@pytest.mark.parametrize(
    ("text", "release", "remark"),
    [
        ("2.23.4", "2.23.4", None),
        ("2.21", "2.21.5", None),
        ("v2.27.3+cuda12.9", "2.27.3", None),
        ("NCCL 2.20.5 (container)", "2.20.5", None),
        ("2.16.5", "2.17.1", "release 2.16.5 is not covered, 2.17.1 taken"),
        ("2.17.0", "2.17.1", "release 2.17.0 is not covered, 2.17.1 taken"),
        ("2.4.6", "2.17.1", "release 2.4.6 is not covered, 2.17.1 taken"),
        ("2.31.2", "2.30.7", "release 2.31.2 is not covered, 2.30.7 taken"),
        ("unknown", "2.21.5", "release not known, 2.21.5 assumed"),
        ("", "2.21.5", "release not known, 2.21.5 assumed"),
    ],
)
def test_a_release_is_taken_or_the_nearest_with_a_remark(text: str, release: str, remark: str | None) -> None:
    found = set_up(entry(gpu="H100", nccl_version=text))
    assert (found.options.version, found.remarks) == (release, () if remark is None else (remark,))


@pytest.mark.parametrize(
    ("algorithm", "protocol", "forced"),
    [
        ("auto", "auto", ("auto", "auto")),
        ("Ring", "LL128", ("ring", "ll128")),
        ("Tree (forced)", "Simple", ("tree", "simple")),
        ("Ring (forced), MIN_CTAS=24, 2 QPs", "LL", ("ring", "ll")),
        ("NVLSTree", "auto", ("nvls_tree", "auto")),
        ("CollNetChain with SHARP (per the job file)", "auto", ("collnet_chain", "auto")),
        ("auto (Ring expected)", "auto (LL expected)", ("auto", "auto")),
        ("p2p", "LL to 1.0 MB (wrong)", ("auto", "auto")),
        ("", "", ("auto", "auto")),
    ],
)
def test_only_what_was_forced_is_forced(algorithm: str, protocol: str, forced: tuple[str, str]) -> None:
    found = set_up(entry(algo=algorithm, proto=protocol))
    assert (found.algorithm, found.protocol) == forced


@pytest.mark.parametrize(("cell", "in_place"), [("yes", True), ("no", False), ("", False)])
def test_in_place_is_what_the_index_says(cell: str, in_place: bool) -> None:
    assert set_up(entry(in_place=cell)).options.in_place is in_place


@pytest.mark.parametrize(
    ("notes", "datatype"), [("dtype half; more", "half"), ("double datatype", "double"), ("", NcclOptions.datatype)]
)
def test_the_data_type_stands_in_the_notes(notes: str, datatype: str) -> None:
    found = set_up(entry(notes=notes))
    assert (found.options.datatype, found.remarks) == (datatype, ())


def test_a_data_type_that_is_not_known_is_remarked_upon() -> None:
    assert set_up(entry(notes="dtype quarter")).remarks == ("data type 'quarter' is not known, float taken",)


def test_graph_replay_registers_buffers_unless_notes_say_otherwise() -> None:
    graph, plain = (
        set_up(entry(notes=notes)).options
        for notes in ("timed by CUDA-graph replay", "timed by CUDA-graph replay; buffers not registered")
    )
    assert (graph.launch, graph.registered, plain.launch, plain.registered) == ("graph", True, "graph", False)


@pytest.mark.parametrize("topology", sorted({rule["topology"] for rule in rules() if "topology" in rule}))
def test_every_topology_of_the_rules_is_there(topology: str) -> None:
    assert topologies.build(topology).number_of_nodes() > 1


@pytest.mark.parametrize("nic", sorted({rule["nic"] for rule in rules() if "nic" in rule}))
def test_every_nic_of_the_rules_is_there(nic: str) -> None:
    assert topologies.build("hgx-h100", nodes=2, nic=nic).number_of_nodes() > 16


def test_every_release_and_variable_of_the_rules_is_there() -> None:
    for rule in rules():
        Version.parse(rule.get("nccl_version", "2.28.9"))
        read_assignments(rule.get("nccl_env", ()))


def test_every_rule_names_columns_of_an_index(repository: Path) -> None:
    with (repository / "tests" / "data" / "tables" / "index.csv").open() as stream:
        columns = set(csv.DictReader(stream).fieldnames or ())
    assert {column for rule in rules() for column in rule["when"]} <= columns


def test_every_class_of_tables_here_is_mapped(repository: Path) -> None:
    for one in read_index(repository / "tests" / "data" / "tables"):
        assert set_up(one).remarks == ()


@pytest.mark.parametrize("folder", [".", "h200x2", "aiconfigurator"])
def test_every_table_that_counts_is_mapped(shared: Path, folder: str) -> None:
    if not (shared / "measurements" / folder / "index.csv").is_file():
        pytest.skip("the folder of measurements is not beside the checkout")
    counted = [one for one in read_index(shared / "measurements" / folder) if one.scored]
    assert counted
    for one in counted:
        assert one.collective in COLLECTIVES
        assert [remark for remark in set_up(one).remarks if not remark.startswith("release")] == [], one.path.name
