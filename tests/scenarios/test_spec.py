from pathlib import Path

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from netsim.errors import ScenarioError, ScheduleError
from scenarios.nccl import NcclOptions
from scenarios.run import settled
from scenarios.spec import load_scenario

GOOD = """\
# Which of two algorithms is faster?
topology: ideal-switch:8@450GB/s,1us
collective: all_reduce
algorithm: [ring, double_binary_tree]
sizes: [1 MiB, 64 MiB]
"""


@pytest.fixture
def write(tmp_path: Path):
    def put(text: str) -> Path:
        path = tmp_path / "ring_or_tree.yaml"
        path.write_text(text)
        return path

    return put


def refusal(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(path), "FILE")


def test_lists_multiply_in_the_order_of_the_file(write) -> None:
    scenario = load_scenario(write(GOOD))
    assert scenario.name == "ring_or_tree"
    assert [(spec.algorithm, spec.size_bytes) for spec in scenario.specs] == [
        ("ring", 2**20),
        ("ring", 2**26),
        ("double_binary_tree", 2**20),
        ("double_binary_tree", 2**26),
    ]
    assert {spec.scenario for spec in scenario.specs} == {"ring_or_tree"}


def test_topologies_and_chunks_multiply_too(write) -> None:
    text = (
        GOOD.replace("topology: ", "topology: [")
        .replace("1us\n", '1us", "ideal-switch:4@450GB/s,1us"]\n')
        .replace("[ideal", '["ideal')
    )
    scenario = load_scenario(write(text + "chunks: [1, 16]\n"))
    assert len(scenario.specs) == 2 * 2 * 2 * 2
    assert [spec.chunks for spec in scenario.specs[:4]] == [1, 1, 16, 16]


def test_a_range_of_sizes_steps_by_a_factor_or_a_step(write) -> None:
    text = GOOD.replace("[1 MiB, 64 MiB]", "{first: 8 B, last: 64 B, factor: 2}").replace(
        "[ring, double_binary_tree]", "ring"
    )
    assert [spec.size_bytes for spec in load_scenario(write(text)).specs] == [8, 16, 32, 64]
    text = text.replace("factor: 2", "step: 28 B")
    assert [spec.size_bytes for spec in load_scenario(write(text)).specs] == [8, 36, 64]


def test_every_option_reaches_the_spec(write) -> None:
    more = """\
name: named
nodes: 2
nic: ndr400
gpus_per_node: 4
gpudirect: false
rate: line
channels: 2
root: 3
chunk: 64 KiB
quantum: 4 KiB
routing: ecmp:1
engine: simpy
max_messages: 1000
"""
    spec = load_scenario(write(GOOD + more)).specs[0]
    assert (spec.scenario, spec.channels, spec.root, spec.chunk_bytes, spec.quantum_bytes) == ("named", 2, 3, 2**16, 2**12)
    assert (spec.routing, spec.engine, spec.max_messages) == ("ecmp:1", "simpy", 1000)
    machine = spec.machine
    assert (machine.nodes, machine.nic, machine.gpus_per_node, machine.gpudirect, machine.rate) == (
        2,
        "ndr400",
        4,
        False,
        "line",
    )


def test_size_zero_needs_no_unit(write) -> None:
    assert load_scenario(write(GOOD.replace("[1 MiB, 64 MiB]", "[0]"))).specs[0].size_bytes == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sizes:", "size:", "FILE:5: unknown key 'size' (did you mean 'sizes'?)"),
        (
            "collective: all_reduce\n",
            "",
            "FILE:1: the key 'collective' is missing; it takes a collective or a list of collectives",
        ),
        ("all_reduce", "all_reduc", "FILE:3: collective is 'all_reduc' (did you mean 'all_reduce'?)"),
        ("[ring,", "[rign,", "FILE:4: algorithm is 'rign' (did you mean 'ring'?)"),
        ("64 MiB", "1e9", "FILE:5: sizes: '1e9' has no unit"),
        ("64 MiB", "64", "FILE:5: sizes is 64, a number; accepted is a list of sizes with a unit"),
        ("64 MiB", "true", "FILE:5: sizes is True, a truth value"),
        ("64 MiB", "64 Mb", "FILE:5: sizes: '64 Mb' is in bits"),
        ("[1 MiB, 64 MiB]", "[]", "FILE:5: sizes is empty"),
        ("[1 MiB, 64 MiB]", "{first: 8 B, last: 64 B}", "FILE:5: sizes needs either factor or step"),
        ("[1 MiB, 64 MiB]", "{first: 8 B, factor: 2}", "FILE:5: sizes: last is missing"),
        ("[1 MiB, 64 MiB]", "{first: 8 B, last: 64 B, facter: 2}", "FILE:5: unknown key 'facter' (did you mean 'factor'?)"),
        ("[1 MiB, 64 MiB]", "{first: 64 B, last: 8 B, factor: 2}", "FILE:5: sizes: the largest size, 8 bytes, is below"),
        ("sizes:", "nodes: true\nsizes:", "FILE:5: nodes is True, a truth value; accepted is a whole number from 1 up"),
        ("sizes:", "nodes: 1e3\nsizes:", "FILE:5: nodes is '1e3', text; accepted is a whole number from 1 up"),
        ("sizes:", "nodes: 0\nsizes:", "FILE:5: nodes is 0, a number; accepted is a whole number from 1 up"),
        ("sizes:", "nodes: 12:30\nsizes:", "FILE:5: YAML reads '12:30' as the number 750"),
        ("sizes:", "gpudirect: 1\nsizes:", "FILE:5: gpudirect is 1, a number; accepted is true or false"),
        (
            "sizes:",
            "protocol: ll8\nsizes:",
            "FILE:5: protocol: 'll8' is no protocol; accepted is ideal (textbook), or NCCL's",
        ),
        ("sizes:", "protocol: [ideal, x]\nsizes:", "FILE:5: protocol: 'x' is no protocol"),
        (
            "sizes:",
            "protocol: ll128\nsizes:",
            "FILE:4: algorithm is 'double_binary_tree'; accepted for all_reduce with NCCL's",
        ),
        ("sizes:", "launch: stream\nsizes:", "FILE:5: launch is for NCCL's protocols, and the protocol is ideal"),
        ("[ring, double_binary_tree]", "[ring, own.py]", "FILE:4: algorithm is 'own.py', and there is no such file beside"),
        (
            "[ring, double_binary_tree]",
            "ring\nprotocol: ll\nkernel_costs: none.toml",
            "FILE:6: kernel_costs: ",
        ),
        ("sizes:", "engine: warp\nsizes:", "FILE:5: engine is 'warp'; accepted are"),
        ("sizes:", "name: ../up\nsizes:", "FILE:5: name is '../up', text; accepted is letters, digits"),
        ("sizes:", "chunk: 0 B\nsizes:", "FILE:5: chunk is '0 B'; a chunk has one byte or more"),
        ("sizes:", "nodes: 1\nnodes: 2\nsizes:", "FILE:6: the key 'nodes' stands there twice"),
        ("sizes:", "sizes: [1 MiB\nx:", "not YAML"),
        ("sizes:", "nodes: \x07\nsizes:", "FILE: not YAML: control characters"),
        ("sizes:", "gpudirect: !!bool abc\nsizes:", "FILE:5: not readable as YAML: 'abc' is no bool"),
        ("sizes:", "name: !!timestamp abc\nsizes:", "FILE:5: not readable as YAML: 'abc' is no timestamp"),
        ("[ring, double_binary_tree]", "[]", "FILE:4: algorithm is []; accepted is an algorithm or a list"),
        ("collective: all_reduce", "collective: []", "FILE:3: collective is []; accepted is a collective or a list"),
        ("topology: ideal-switch:8@450GB/s,1us", "topology: []", "FILE:2: topology is []; accepted is a preset"),
        ("sizes:", "chunks: []\nsizes:", "FILE:5: chunks is []; accepted is a whole number from 1 up, or a list"),
        ("sizes:", f"name: {'a' * 101}\nsizes:", "100 at most"),
    ],
)
def test_a_message_points_at_the_line_and_says_what_is_accepted(old: str, new: str, message: str, write) -> None:
    assert old in GOOD
    assert message in refusal(write(GOOD.replace(old, new)))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "FILE:1: a scenario is a mapping"), ("- 1\n", "FILE:1: a scenario is a mapping"), ("a: &x [*x]\n", "FILE")],
)
def test_what_is_no_scenario_is_refused(text: str, message: str, write) -> None:
    assert message in refusal(write(text))


def test_a_bomb_of_aliases_is_refused(write) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)]
    assert "entries" in refusal(write("\n".join(lines)))


def test_a_bomb_of_mappings_is_refused(write) -> None:
    lines = ["a0: &a0 {k: x, l: x}"]
    lines += [f"a{level}: &a{level} {{{', '.join(f'k{key}: *a{level - 1}' for key in range(10))}}}" for level in range(1, 9)]
    assert "entries" in refusal(write("\n".join(lines)))


def test_lists_that_multiply_to_too_many_runs_are_refused_before_they_are_built(write) -> None:
    # 3 x 300 x 99,999 = 90 million runs, which would fill the memory
    text = GOOD.replace("[1 MiB, 64 MiB]", "{first: 1 B, last: 99999 B, step: 1 B}")
    text = text.replace("[ring, double_binary_tree]", "[chain, tree, double_binary_tree]")
    assert "multiply to 89999100 runs" in refusal(write(text + f"chunks: {list(range(1, 301))}\n"))


def test_deep_nesting_is_refused(write) -> None:
    assert "nest" in refusal(write("a: " + "[" * 6000))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no endless device")
def test_a_device_without_end_is_refused_at_once() -> None:
    assert "larger than" in refusal(Path("/dev/zero"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refusal(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in refusal(tmp_path)


def test_nodes_and_links_may_stand_in_the_scenario_itself(write) -> None:
    text = GOOD.replace(
        "topology: ideal-switch:8@450GB/s,1us\n",
        """\
topology:
  nodes: {a: {kind: gpu}, b: {kind: gpu}}
  links:
    - {between: [a, b], latency: 1 us, bandwidth: 1 GB/s}
""",
    ).replace("[ring, double_binary_tree]", "ring")
    path = write(text)
    from scenarios.run import run_spec

    row = run_spec(load_scenario(path).specs[0])
    # ring of 2: 2 steps of 1 us and half a MiB each at 1 GB/s
    assert row.time_us == pytest.approx(2 * (1 + 2**19 / 1e3))


def test_a_topology_file_is_found_beside_the_scenario(write, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("nodes: {}\n")
    spec = load_scenario(write(GOOD.replace("ideal-switch:8@450GB/s,1us", "mine.yaml"))).specs[0]
    assert spec.machine.topology == str(tmp_path / "mine.yaml")


def test_dimensions_of_a_hierarchical_algorithm_stand_in_its_name(write) -> None:
    scenario = load_scenario(write(GOOD.replace("[ring, double_binary_tree]", "hierarchical:2x4")))
    assert {spec.algorithm for spec in scenario.specs} == {"hierarchical:2x4"}


OWN = """from netsim import ScheduleBuilder


def schedule(ranks, size_bytes):
    plan = ScheduleBuilder("broadcast", "mine", ranks, size_bytes)
    for rank in range(1, ranks):
        plan.send(0, rank, size=size_bytes)
    return plan.build()
"""


def test_a_schedule_of_ones_own_is_found_beside_the_scenario(write, tmp_path: Path) -> None:
    from scenarios.run import run_spec

    (tmp_path / "own.py").write_text(OWN)
    text = GOOD.replace("all_reduce", "broadcast").replace("double_binary_tree", "own.py").replace("450GB/s", "1GB/s")
    specs = load_scenario(write(text.replace("[1 MiB, 64 MiB]", "[1 MB]"))).specs
    assert [spec.algorithm for spec in specs] == ["ring", str(tmp_path / "own.py")]
    row = run_spec(specs[1])
    # Seven messages of 1 MB leave the root one after another at 1 GB/s: 1 us + 7 x 1 ms.
    assert (row.algorithm, row.time_us) == ("own.py", pytest.approx(7001))


def test_each_of_several_link_profiles_is_found_beside_the_scenario(write, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("")
    spec = load_scenario(write(GOOD + "profile: nvlink4, mine.toml\n")).specs[0]
    assert spec.machine.profile == f"nvlink4,{tmp_path / 'mine.toml'}"


def test_groups_are_read_as_on_the_command_line(write) -> None:
    assert load_scenario(write(GOOD + "groups: div:4\n")).specs[0].groups == "div:4"


def test_a_quantum_lowers_the_limit_that_nobody_gave(write) -> None:
    from netsim.engine.run import DEFAULT_MAX_MESSAGES
    from scenarios.run import DEFAULT_MAX_PIECES

    assert load_scenario(write(GOOD)).specs[0].max_messages == DEFAULT_MAX_MESSAGES
    assert load_scenario(write(GOOD + "quantum: 1 B\n")).specs[0].max_messages == DEFAULT_MAX_PIECES
    assert load_scenario(write(GOOD + "quantum: 1 B\nmax_messages: 7\n")).specs[0].max_messages == 7


NCCL = """\
topology: hgx-h100
collective: [all_reduce, alltoall]
protocol: [ideal, auto]
nccl_version: "2.27.3"
nccl_env: NCCL_NVLS_ENABLE=0
registered: true
launch: stream
gpus_per_process: 8
sizes: [1 MiB]
"""


def test_protocols_multiply_and_what_nccl_is_told_goes_into_every_spec(write) -> None:
    specs = load_scenario(write(NCCL)).specs
    assert [(spec.collective, spec.protocol) for spec in specs] == [
        ("all_reduce", "ideal"),
        ("all_reduce", "auto"),
        ("alltoall", "ideal"),
        ("alltoall", "auto"),
    ]
    told = NcclOptions("2.27.3", ("NCCL_NVLS_ENABLE=0",), True, "stream", 8)
    assert [spec.nccl for spec in specs] == [NcclOptions(), told] * 2


def test_files_for_nccl_are_looked_for_beside_the_scenario(write, tmp_path: Path) -> None:
    (tmp_path / "rules.conf").write_text("allreduce,0,4294967295,ring,simple,0,-1,-1\n")
    (tmp_path / "nccl.conf").write_text("NCCL_NVLS_ENABLE=0\n")
    text = NCCL.replace("nccl_env: NCCL_NVLS_ENABLE=0", "nccl_env: [nccl.conf]") + "tuner: rules.conf\n"
    (nccl,) = {spec.nccl for spec in load_scenario(write(text)).specs if spec.protocol != "ideal"}
    assert nccl.environment == (str(tmp_path / "nccl.conf"),)
    assert nccl.tuner == str(tmp_path / "rules.conf")


def test_channels_are_nccls_number_unless_the_file_says_one(write) -> None:
    assert {spec.channels for spec in load_scenario(write(NCCL)).specs} == {None}
    assert {spec.channels for spec in load_scenario(write(NCCL + "channels: 4\n")).specs} == {4}


def test_chunks_go_to_the_textbook_alone(write) -> None:
    specs = load_scenario(write(NCCL.replace("[all_reduce, alltoall]", "all_reduce") + "chunks: 4\n")).specs
    assert [(spec.protocol, spec.chunks) for spec in specs] == [("ideal", 4), ("auto", None)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"2.27.3"', "2.27", "FILE:4: nccl_version is 2.27, a number; accepted is a release of NCCL in quotes"),
        ('"2.27.3"', '"2.1"', "FILE:4: nccl_version: NCCL 2.1 is not covered; accepted are 2.17.1 to"),
        ("NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABEL=0", "FILE:5: nccl_env: 'NCCL_NVLS_ENABEL' is no variable of NCCL (did you"),
        ("NCCL_NVLS_ENABLE=0", "[x.conf]", "FILE:5: nccl_env: 'x.conf' is neither"),
        ("stream", "later", "FILE:7: launch is 'later', text; accepted is graph, stream, none"),
        ("process: 8", "process: 0", "FILE:8: gpus_per_process is 0, a number; accepted is a whole number from 1 up"),
        (
            "sizes:",
            "tuner: x.conf\nsizes:",
            "FILE:9: tuner: cannot read x.conf: does not exist; rules of the tuner plugin",
        ),
        ("[ideal, auto]", "auto\nchunks: 4", "FILE:4: chunks is for the protocol ideal; NCCL cuts data by its own rules"),
        ("[ideal, auto]", "ll\nalgorithm: bruck", "FILE:4: algorithm is 'bruck'; accepted for all_reduce with NCCL's"),
    ],
)
def test_what_nccl_would_not_take_is_refused_at_its_line(old: str, new: str, message: str, write) -> None:
    assert old in NCCL
    assert message in refusal(write(NCCL.replace(old, new)))


@pytest.mark.parametrize(("algorithm", "count"), [("'^nvls'", 1), ("ring,tree", 1), ("[ring, tree]", 2)])
def test_algorithms_may_be_named_as_nccl_names_them(algorithm: str, count: int, write) -> None:
    text = NCCL.replace("[ideal, auto]", "simple").replace("[all_reduce, alltoall]", f"all_reduce\nalgorithm: {algorithm}")
    assert len(load_scenario(write(text)).specs) == count


def test_runs_of_the_textbook_go_without_keys_for_nccl_that_others_use(write) -> None:
    text = NCCL.replace("[ideal, auto]", "auto").replace("[all_reduce, alltoall]", "all_reduce")
    specs = load_scenario(write(f"{text}algorithm: [Ring, one_shot]\n")).specs
    assert [spec.nccl.launch for spec in specs] == ["stream", "graph"]
    (alone,) = load_scenario(write(f"{text}algorithm: one_shot\n")).specs
    with pytest.raises(
        ScheduleError, match="nccl_version and nccl_env and registered and launch and gpus_per_process: only"
    ):
        settled(alone)


def test_lists_of_protocols_are_read_as_nccl_reads_them(write) -> None:
    text = NCCL.replace("[all_reduce, alltoall]", "all_reduce")
    assert load_scenario(write(text.replace("[ideal, auto]", "^LL128"))).specs[0].protocol == "^LL128"
    words = refusal(write(text.replace("[ideal, auto]", "'LL,LL8'")))
    assert "FILE:3: protocol: 'LL,LL8': 'LL8' is no protocol of NCCL (did you mean LL?)" in words
