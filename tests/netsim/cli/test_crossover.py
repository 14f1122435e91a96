import csv
import io
import re
from collections.abc import Callable

import pytest

TREE = "crossover all_reduce --topology ideal-switch:8@450GB/s,1us --algos ring,double_binary_tree"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_formulas_cross_at_32_alpha_b(ask: Callable) -> None:
    (row,) = rows(ask(f"{TREE} -b 10M -e 40M --chunks 16 --csv -").out)
    # p = 8: 14 alpha + 1.75 N/B = 6 alpha + 2 N/B at N = 32 alpha B = 14.4 MB
    assert float(row["formula_bytes"]) == pytest.approx(14.4e6, rel=1e-5)
    assert (row["below"], row["above"]) == ("double_binary_tree", "ring")


def test_a_tree_in_one_piece_crosses_much_earlier(ask: Callable) -> None:
    (row,) = rows(ask(f"{TREE} -b 500K -e 4M --chunks 1 --csv -").out)
    assert float(row["crossing_bytes"]) == pytest.approx(1.1e6, rel=0.02)


def test_a_crossing_is_enclosed_to_one_per_cent(ask: Callable) -> None:
    for row in rows(ask(f"{TREE} -b 500K -e 4M --chunks 1,4 --csv -").out):
        low, found, high = (float(row[name]) for name in ("low_bytes", "crossing_bytes", "high_bytes"))
        assert low <= found <= high <= low * 1.01


def test_words_name_both_algorithms_and_both_sizes(ask: Callable) -> None:
    out = ask(f"{TREE} -b 500K -e 4M --chunks 1").out
    assert re.search(r"1 chunk: double_binary_tree is faster below 1\.1\d* MB, ring above .*formula: 14\.4 MB", out)


def test_no_crossing_is_said(ask: Callable) -> None:
    answer = ask("crossover all_reduce --topology ideal-switch:8@450GB/s,1us --algos ring,flat -b 64M -e 128M")
    assert answer.code == 0
    assert "no crossing" in answer.out
    assert "ring is the fastest" in answer.out


def test_sizes_in_the_csv_are_whole_bytes(ask: Callable) -> None:
    (row,) = rows(ask(f"{TREE} -b 500K -e 4M --chunks 1 --csv -").out)
    assert all(row[name].isdecimal() for name in ("crossing_bytes", "formula_bytes", "low_bytes", "high_bytes"))


def test_two_protocols_of_one_algorithm_are_compared(ask: Callable) -> None:
    # LL sends twice the bytes, Simple waits longer at every step.
    (row,) = rows(
        ask("crossover all_reduce --topology hgx-h100 --algos ring:ll,Ring:Simple -b 1M -e 16M --points 1 --csv -").out
    )
    assert (row["below"], row["above"]) == ("ring:ll", "Ring:Simple")
    by_function = ask(
        "crossover all_reduce --topology hgx-h100 --algos allreduce:ring,tree;broadcast:ring -b 1M -e 2M --csv -"
    )
    assert by_function.code == 0


def test_what_cannot_be_compared_by_protocol_is_refused(ask: Callable) -> None:
    answer = ask(f"{TREE[: TREE.index(' --algos')]} --algos ring:ll,ring:simple -b 1M -e 2M")
    assert "'ring:ll' names a protocol of NCCL's, and these runs are textbook (protocol ideal)" in answer.sentence()
    answer = ask("crossover all_reduce --topology hgx-h100 --algos ^nvls,ring -b 1M -e 2M")
    assert "'^nvls' leaves NCCL a choice; a crossing needs the algorithms by their names" in answer.sentence()
    answer = ask("crossover all_reduce --topology hgx-h100 --algos broadcast:ring,tree -b 1M -e 2M")
    assert "has no list for all_reduce; accepted are names, or all_reduce:NAME,NAME" in answer.sentence()
