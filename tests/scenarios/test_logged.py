"""What a file of times says of its run; whatever stands there, reading it ends in facts or in one sentence."""

from pathlib import Path

import pytest

from netsim.errors import NetsimError
from scenarios.logged import Asked, options_of, read_logged

ROW = "1024  256  float  sum  -1  12.50  0.08  0.14  0  12.40  0.08  0.14  0\n"


def head(gpus: str) -> str:
    return f"# nThread 1 nGpus {gpus} minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20 graph: 0\n"


@pytest.mark.parametrize("number", ["9" * 5000, "1" + "0" * 400, "1" + "0" * 50])
def test_numbers_of_absurd_length_are_passed_over(tmp_path: Path, number: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(f"{head(number)}{ROW.replace('1024', number)}#  Rank {number} Pid 1 on node device 0 [0x1a] GPU\n{ROW}")
    logged = read_logged(path)
    assert logged.times == ((1024, 12.5),)
    assert options_of(logged, Asked(), []).gpus_per_process == 1
    path.write_text(head("4") + ROW)
    assert options_of(read_logged(path), Asked(), []).gpus_per_process == 4


def test_a_size_in_json_that_no_float_holds_is_no_row(tmp_path: Path) -> None:
    row = (
        '{"size": %s, "count": 2, "type": "float", "redop": "sum", "root": "-1", "out_of_place": {"time": 9.5, "alg_bw": 1}}'
    )
    path = tmp_path / "a.json"
    for size in (10**400, 10**4299):
        path.write_text('{"results": [' + row % size + "]}")
        with pytest.raises(NetsimError, match="neither NCCL nor nccl-tests says anything in it"):
            read_logged(path)
