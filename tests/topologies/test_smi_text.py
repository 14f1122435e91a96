import contextlib
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import FabricError
from topologies.distances import NODE, PIX, PXB, SYS, Table
from topologies.smi_text import holds_smi_matrix, parse_smi

HEAD = ["GPU0", "GPU1", "NIC0", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
ROWS = [
    ["GPU0", "X", "NV12", "PXB", "0-31,64-95", "0", "N/A"],
    ["GPU1", "NV12", "X", "SYS", "32-63", "1", "N/A"],
    ["NIC0", "PXB", "SYS", "X"],
]
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_bond_0
"""


def text(rows: list[list[str]], head: list[str] | None = None, between: str = "\t") -> str:
    lines = [between + between.join(HEAD if head is None else head), *(between.join(row) for row in rows)]
    return "\n".join(lines) + "\n"


def facts(table: Table) -> tuple[object, ...]:
    return table.gpus, table.nics, table.bonds, table.distances, table.near, table.numa, table.coherent, table.ports


PLAIN = parse_smi(text(ROWS), "here")


def test_cells_become_links_and_distances_by_their_names() -> None:
    assert (PLAIN.gpus, PLAIN.nics) == (["GPU0", "GPU1"], ["NIC0"])
    assert PLAIN.bonds == {("GPU0", "GPU1"): 12}
    assert PLAIN.distances == {("GPU0", "NIC0"): PXB, ("GPU1", "NIC0"): SYS}
    assert PLAIN.numa == {"GPU0": 0, "GPU1": 1}
    assert PLAIN.remarks == []


@pytest.mark.parametrize(
    "pasted",
    [
        text(ROWS, between="    "),
        text(ROWS).replace("\n", "\r\n"),
        text(ROWS).replace("GPU0\t", "\x1b[4mGPU0\t", 1).replace("ID\n", "ID\x1b[0m\n"),
        text(ROWS).replace("GPU0\t", "^[[4mGPU0\t", 1).replace("ID\n", "ID^[[0m\n"),
        text(ROWS).replace("GPU0\t", "[4mGPU0\t", 1).replace("ID\n", "ID[0m\n"),
        "user@host:~$ nvidia-smi topo -m\n" + text(ROWS) + "user@host:~$\n",
        "".join(f"[1,0]<stdout>:{line}\n" for line in text(ROWS).splitlines()),
        "".join(f"node01: {line}\n" for line in text(ROWS).splitlines()),
        text(ROWS).replace("GPU0\t", "\ufffd[4mGPU0\t", 1).replace("ID\n", "ID\\x1b[0m\n"),
        "".join(f"0: {line}\n" for line in text(ROWS).splitlines()),
        "".join(f"> {line}\n" for line in text(ROWS).splitlines()),
        "".join(f"> > {line}\n" for line in text(ROWS).splitlines()),
        "".join(f"# {line}\n" for line in text(ROWS).splitlines()),
        "".join(f"2026-02-03T04:05:06.789Z {line}\n" for line in text(ROWS).splitlines()),
        "".join(f"2026-02-03 04:05:06,789 {line}\n" for line in text(ROWS).splitlines()),
        "".join(f"INFO 02-03 04:05:06 [topo.py:7] {line}\n" for line in text(ROWS).splitlines()),
        "".join(f"[rank0]: {line}\n" for line in text(ROWS).splitlines()),
        "".join(f"| {line} |\n" for line in text(ROWS, between=" | ").splitlines()),
        text(ROWS).replace("\t", "\xa0\xa0"),
        text(ROWS).replace("\n", "      \n\n"),
        text(ROWS).replace("\t0-31,64-95", "\n0-31,64-95").replace("NV12\tPXB\n", "NV12\nPXB "),
        text(ROWS).replace("NIC0\tCPU", "NIC0\nCPU", 1),
        text(ROWS).replace("GPU1\tNIC0", "GPU1\nNIC0", 1),
        text(ROWS).replace("N/A", "\tN/A"),
        text(ROWS) + text(ROWS),
    ],
    ids=lambda pasted: repr(pasted[:12]),
)
def test_the_way_it_was_pasted_changes_nothing(pasted: str) -> None:
    assert facts(parse_smi(pasted, "here")) == facts(PLAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\tNV12\tPXB\t", "\tNV12PXB\t"),
        ("GPU0\tX\t", "GPU0X\t"),
        ("GPU0\tX\tNV12\tPXB\t", "GPU0XNV12PXB"),
        ("\tX\tSYS\t", "\tXSYS"),
        ("GPU0\tGPU1\tNIC0\tCPU", "GPU0GPU1NIC0CPU"),
        ("Affinity\tNUMA", "AffinityNUMA"),
    ],
)
def test_cells_and_names_that_ran_together_are_parted(old: str, new: str) -> None:
    assert text(ROWS).count(old) == 1
    assert facts(parse_smi(text(ROWS).replace(old, new), "here")) == facts(PLAIN)


def test_a_text_without_any_blanks_keeps_its_links_and_distances() -> None:
    status = "\n GPU0 GPU1\n GPU0 X GNS\n GPU1 GNS X\n"
    table = parse_smi(re.sub(r"[ \t]+", "", text(ROWS) + LEGEND + status), "here")
    assert (table.gpus, table.nics, table.ports) == (PLAIN.gpus, PLAIN.nics, {"NIC0": "mlx5_bond_0"})
    assert (table.bonds, table.distances) == (PLAIN.bonds, PLAIN.distances)
    assert table.staged
    # The affinities ran together too, so that only their being different is left.
    assert table.near == {"GPU0": "0-31,64-950N/A", "GPU1": "32-631N/A"}
    assert any("do not match the head" in remark for remark in table.remarks)


def test_network_names_that_ran_together_are_parted_by_their_rows() -> None:
    names = ["mlx5_bond_0", "mlx5_bond_1", "mlx5_bond_10"]
    rows = [["GPU0", "X", "PIX", "SYS", "SYS"], *([name, *["SYS"] * 4] for name in names)]
    for index, row in enumerate(rows[1:], 1):
        row[index + 1] = "X"
    rows[1][1] = "PIX"
    table = parse_smi("        GPU0    mlx5_bond_0mlx5_bond_1mlx5_bond_10\n" + "\n".join(map("  ".join, rows)), "here")
    assert table.nics == names
    assert table.distances["GPU0", "mlx5_bond_0"] == PIX


def test_a_link_count_that_ran_into_its_affinity_is_found_in_the_other_half() -> None:
    # NV120-31 is NV1 and 20-31 or NV12 and 0-31; the row of GPU1 says which.
    table = parse_smi("GPU0 GPU1 CPU Affinity\nGPU0 X NV120-31\nGPU1 NV12 X 0-31\n", "here")
    assert table.bonds == {("GPU0", "GPU1"): 12}
    assert table.near == {"GPU0": "0-31", "GPU1": "0-31"}


def test_cells_that_can_be_read_in_two_ways_are_refused() -> None:
    with pytest.raises(FabricError, match="line 2: cells of the row of GPU0 ran together and can be read in 2 ways"):
        parse_smi("GPU0 GPU1 CPU Affinity\nGPU0 X NV120-31\n", "here")


def test_columns_may_stand_in_any_order() -> None:
    head = ["NUMA Affinity", "NIC0", "CPU Affinity", "GPU1", "GPU0"]
    rows = [
        ["GPU1", "1", "SYS", "32-63", "X", "NV12"],
        ["NIC0", "X", "SYS", "PXB"],
        ["GPU0", "0", "PXB", "0-31", "NV12", "X"],
    ]
    # A title between the cells cannot be told from a cell that is missing, so only those before and behind are read.
    rows[0].pop(3)
    rows[2].pop(3)
    head.pop(2)
    table = parse_smi(text(rows, head), "here")
    assert table.gpus == ["GPU0", "GPU1"]
    assert (table.bonds, table.distances) == (PLAIN.bonds, PLAIN.distances)
    assert table.numa == {"GPU0": 0, "GPU1": 1}


def test_missing_affinity_columns_are_no_obstacle() -> None:
    table = parse_smi(text([row[:4] for row in ROWS], HEAD[:3]), "here")
    assert (table.bonds, table.distances, table.near) == (PLAIN.bonds, PLAIN.distances, {})


@pytest.mark.parametrize("affinity", ["0,2,4", "0, 2, 4", "0 , 2"])
def test_an_affinity_may_be_a_list(affinity: str) -> None:
    rows = [["GPU0", "X", "NV2", affinity, "0,3-9"], ["GPU1", "NV2", "X", affinity, "0,3-9"]]
    table = parse_smi(text(rows, ["GPU0", "GPU1", "CPU Affinity", "NUMA Affinity"]), "here")
    assert table.near == {"GPU0": "0,3-9", "GPU1": "0,3-9"}
    assert table.numa == {}  # no single node


def test_the_title_of_the_numa_column_may_be_short() -> None:
    pasted = text(ROWS).replace("NUMA Affinity", "NUMA")
    assert facts(parse_smi(pasted, "here")) == facts(PLAIN)


def test_a_numa_column_without_a_number_leaves_the_cpus_to_tell() -> None:
    table = parse_smi(
        text([["GPU0", "X", "NV2", "0-7", "N/A"], ["GPU1", "NV2", "X", "8-15", "N/A"]], HEAD[:2] + HEAD[3:5]), "x"
    )
    assert table.near == {"GPU0": "0-7", "GPU1": "8-15"}


def test_a_gpu_that_is_a_numa_node_is_coherent() -> None:
    assert parse_smi(text(ROWS).replace("N/A", "2", 1), "here").coherent == ["GPU0"]


def test_numbers_may_have_gaps_and_two_digits() -> None:
    rows = [["GPU2", "X", "SYS"], ["GPU10", "SYS", "X"]]
    assert parse_smi(text(rows, ["GPU2", "GPU10"]), "here").gpus == ["GPU2", "GPU10"]


def test_one_gpu_alone_is_a_machine() -> None:
    assert parse_smi("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", "here").gpus == ["GPU0"]


def test_the_legend_names_network_devices() -> None:
    assert parse_smi(text(ROWS) + LEGEND, "here").ports == {"NIC0": "mlx5_bond_0"}


def test_soc_is_the_older_word_for_sys() -> None:
    assert parse_smi(text(ROWS).replace("SYS", "SOC"), "here").distances["GPU1", "NIC0"] == SYS


def test_halves_that_differ_take_the_slower_reading_with_a_remark() -> None:
    table = parse_smi(text(ROWS).replace("NV12\tX", "NV8\tX").replace("NIC0\tPXB", "NIC0\tNODE"), "here")
    assert table.bonds == {("GPU0", "GPU1"): 8}
    assert table.distances["GPU0", "NIC0"] == NODE
    assert table.remarks == [
        "the two halves of the matrix differ at GPU0 - GPU1 (NV12 and NV8), GPU0 - NIC0 (NODE and PXB); "
        "the slower reading is taken"
    ]


def test_a_device_without_a_row_is_read_from_the_others() -> None:
    table = parse_smi(text(ROWS[:1] + ROWS[2:]), "here")
    assert (table.bonds, table.distances) == (PLAIN.bonds, PLAIN.distances)
    assert table.remarks == ["GPU1 has a column but no row; read from the others"]


def test_a_status_table_is_told_apart() -> None:
    status = "\n \tGPU0\tGPU1\t\n GPU0\tX\t{0}\t\n GPU1\t{0}\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
    refused = parse_smi(text(ROWS) + LEGEND + status.format("GNS"), "here")
    assert refused.staged
    assert (refused.bonds, refused.distances) == (PLAIN.bonds, PLAIN.distances)
    assert "GNS" in refused.remarks[0]
    assert parse_smi(text(ROWS) + status.format("DR"), "here").staged  # disabled by a registry key
    allowed = parse_smi(status.format("OK") + text(ROWS), "here")
    assert (allowed.staged, allowed.remarks) == (False, [])


@pytest.mark.parametrize(
    ("pasted", "words"),
    [
        (" \tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n", "only the status table"),
        ("GPU0 GPU1\n", "holds no matrix"),
        (text([*ROWS, ROWS[0]]), "line 5: a second row of GPU0"),
        (text(ROWS).replace("\tNV12\tPXB\t", "\tNV12\tABC\t"), "line 2: the row of GPU0 has the cell 'ABC'"),
        (text(ROWS).replace("\tNV12\tPXB\t", "\tNV0\tPXB\t"), "line 2: the row of GPU0 has the cell 'NV0'"),
        (
            text([["GPU0", "X"], ["GPU1", "NV12", "X", "SYS"]], HEAD[:3]),
            "line 2: the row of GPU0 has 1 cell where the head names 3",
        ),
        (text([["GPU0", "NV12", "X", "SYS"]], HEAD[:3]), "line 2: the row of GPU0 has no single X under its own name"),
        (text([["GPU0", "X", "X", "SYS"]], HEAD[:3]), "no single X"),
        (
            text([["GPU0", "X", "SYS"], ["GPU1", "SYS", "X"], ["GPU2", "SYS", "SYS"]], HEAD[:2]),
            "GPU2 has a row but no column",
        ),
        (text([["GPU0", "X", "SYS"]], ["GPU0", "GPU0"]), "names GPU0 twice"),
        (text([["GPU0", "X", "SYS", "SYS"]], ["GPU0", "GPU1", "GPU2"]), "neither GPU1 nor GPU2 has a row"),
        (text([["NIC0", "SYS", "X"]], ["GPU0", "NIC0"]), "no GPU has a row"),
        (text(ROWS).replace("PXB", "NV4"), "GPU0 - NIC0 is NV4, but NVLink joins GPUs only"),
        (text(ROWS) + text(ROWS).replace("NV12", "NV4"), "line 5: a second, different matrix"),
        ("\t" + "\t".join(f"GPU{n}" for n in range(600)) + "\n", "more than 256 columns"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_its_place(pasted: str, words: str) -> None:
    with pytest.raises(FabricError, match=re.escape(words)) as caught:
        parse_smi(pasted, "here.txt")
    assert str(caught.value).startswith("here.txt: ")
    assert "\n" not in str(caught.value)


def test_other_text_is_not_taken_for_a_matrix() -> None:
    for other in ("", "hello", "GPU 0: NVIDIA H100 (UUID: GPU-1)", LEGEND, "see GPU0 and GPU1 for more"):
        assert not holds_smi_matrix(other)


@given(cut=st.integers(0, 700), junk=st.text(max_size=8), seed=st.integers(0, 10**6))
def test_a_damaged_text_is_read_or_refused_and_never_crashes(cut: int, junk: str, seed: int) -> None:
    whole = text(ROWS) + LEGEND
    damaged = whole[:cut] + junk + whole[cut + len(junk) + random.Random(seed).choice((0, 1, 7)) :]
    with contextlib.suppress(FabricError):
        assert parse_smi(damaged, "here").gpus


@given(st.text(alphabet="GPU0123NIX VSYPBH\t\n,-/A", max_size=300))
def test_text_of_the_same_letters_never_crashes(pasted: str) -> None:
    with contextlib.suppress(FabricError):
        parse_smi(pasted, "here")
