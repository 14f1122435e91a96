"""A schedule from a Python file: what is accepted, and the sentences for what is not."""

import pytest

import netsim
from netsim.errors import ProofError, ScheduleError
from netsim.schedule.catalogue import build_schedule, options_for
from netsim.schedule.own import is_file
from netsim.testing import star

END = "    return plan.build()\n"
TOO_FEW = "schedule\\(\\) made a schedule whose ranks is 2; asked for was 4"
HEAD = "from netsim import ScheduleBuilder\n\n\ndef schedule(ranks, size_bytes):\n"
PLAN = HEAD + "    plan = ScheduleBuilder('all_reduce', 'mine', ranks, size_bytes)\n"


@pytest.fixture
def mine(tmp_path):
    """Write a file and build its schedule for an all-reduce of 80 bytes over four ranks."""

    def build(text, collective="all_reduce", **options):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return build_schedule(collective, str(path), 4, 80, **options)

    return build


def test_a_file_becomes_a_schedule_with_its_name(mine):
    schedule = mine(PLAN + "    plan.send(0, 1, size=size_bytes)\n" + END)
    assert (schedule.collective, schedule.algorithm, len(schedule)) == ("all_reduce", "mine.py", 1)


def test_names_with_an_ending_or_a_folder_are_files():
    assert [is_file(name) for name in ("a.py", "./a", "plans/ring", "a.xml")] == [True] * 4
    assert not any(is_file(name) for name in ("ring", "auto", "hierarchical:2x8", "ring.p"))


def test_a_file_may_define_dataclasses_and_is_run_anew_every_time(mine):
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n" + HEAD
    text += "    plan = ScheduleBuilder(PAIR.name, 'mine', ranks, size_bytes)\n    return plan.build()\n"
    text += "\n\n@dataclass\nclass Pair:\n    name: str\n\n\nPAIR = Pair('all_reduce')\n"
    assert len(mine(text)) == 0
    assert len(mine(PLAN + "    plan.send(0, 1, size=1)\n" + END)) == 1


def test_nothing_is_left_beside_the_file(mine, tmp_path):
    mine(PLAN + END)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def schedule(ranks, size_bytes)\n    pass\n", "mine.py:1: expected ':'"),
        ("x = 1\n\ny = x[0]\n", "mine.py:3: TypeError: 'int' object is not subscriptable"),
        ("import no_such_module\n", "mine.py:1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit\n", "mine.py:1: ends the program instead of returning a Schedule"),
        (PLAN + "    plan.send(0, 9, size=1)\n" + END, "mine.py:7: operation 0 .* destination outside 0 to 3"),
        (PLAN + "    plan.send(0, 1)\n", "mine.py:6: operation 0 from rank 0 to rank 1 needs a size"),
        (PLAN + "    return plan\n", "mine.py:4: schedule\\(\\) returns a ScheduleBuilder; end it with return plan.build()"),
        (HEAD + "    return 7\n", "mine.py:4: schedule\\(\\) returns int; it must return a Schedule"),
        ("def plan(ranks, size_bytes):\n    pass\n", "mine.py: has no function schedule\\(ranks, size_bytes\\)"),
        ("def schedule(ranks):\n    pass\n", "mine.py: TypeError: schedule\\(\\) takes 1 positional argument"),
        (PLAN.replace("'mine', ranks", "'mine', 2") + END, f"mine.py:4: {TOO_FEW}"),
    ],
)
def test_what_goes_wrong_is_one_sentence_with_file_and_line(mine, text, words):
    with pytest.raises(ScheduleError, match=words):
        mine(text)


def test_a_schedule_for_another_collective_is_refused(mine):
    with pytest.raises(ScheduleError, match="whose collective is all_reduce; asked for was reduce"):
        mine(PLAN + END, collective="reduce")


def test_a_root_must_be_the_one_that_was_asked_for(mine):
    text = PLAN.replace("all_reduce", "broadcast") + END
    assert mine(text, collective="broadcast").root == 0
    with pytest.raises(ScheduleError, match="whose root is 0; asked for was 2"):
        mine(text, collective="broadcast", root=2)


def test_a_failed_proof_in_the_file_stays_a_no(mine):
    text = "from netsim import prove\n" + PLAN + "    made = plan.build()\n    prove(made)\n    return made\n"
    with pytest.raises(ProofError, match="mine.py:8: all_reduce by mine breaks its promise"):
        mine(text)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere/mine.py", "nowhere/mine.py: cannot be read: No such file"),
        ("nowhere/mine", "not the name of an algorithm nor of a Python file"),
        ("mine.xml", "mine.xml: schedules from XML files are not yet available"),
    ],
)
def test_files_that_cannot_be_run_are_refused(name, words):
    with pytest.raises(ScheduleError, match=words):
        build_schedule("all_reduce", name, 4, 80)


def test_a_huge_file_is_refused(mine):
    with pytest.raises(ScheduleError, match="larger than 1048576 bytes"):
        mine("#" * (1 << 20) + "\n")


def test_what_a_file_prints_is_no_data(mine, capsys):
    mine("print('loaded')\n" + PLAN + "    print('called')\n" + END)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "loaded\ncalled\n"


def test_time_takes_names_only():
    with pytest.raises(ScheduleError, match="'mine.py'; time takes names only"):
        netsim.time("all_reduce", 80, star(4), algorithm="mine.py")


def test_a_file_takes_no_chunks(mine):
    with pytest.raises(ScheduleError, match="cuts its data itself; it takes no chunk size"):
        mine(PLAN + END, chunks=2)
    assert options_for("all_reduce", "mine.py") == {"root"}


def test_a_failing_file_names_the_last_of_its_own_lines(mine):
    read = "import json\n\n\ndef read(text):\n    return json.loads(text)\n\n\n"
    with pytest.raises(ScheduleError, match="mine.py:5: JSONDecodeError: "):
        mine(read + "def schedule(ranks, size_bytes):\n    return read('{')\n")


FLAT = PLAN + "    up = [plan.send(rank, 0, size=size_bytes, reduce=True) for rank in range(1, ranks)]\n"
FLAT += "    [plan.send(0, rank, size=size_bytes, after=up) for rank in range(1, ranks)]\n    made = plan.build()\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("replace(made, wire=made.wire // 2)", "mine.py:5: operation 0 .* has fewer bytes on the wire than it carries"),
        ("replace(made, lane=made.lane + 99)", "mine.py:5: operation 0 .* has no lane"),
        (
            "replace(made, lane=made.lane[:1])",
            "mine.py:5: the schedule's column 'lane' must be an array of int32, shape \\(6,\\)",
        ),
        ("replace(made, kind=None)", "mine.py:5: the schedule's column 'kind' must be an array of uint8"),
        ("object.__new__(type(made))", "mine.py:5: the schedule's column 'kind' must be an array of uint8"),
    ],
)
def test_columns_that_were_replaced_after_the_check_are_checked_again(mine, change, words):
    with pytest.raises(ScheduleError, match=words):
        mine("from dataclasses import replace\n" + FLAT + f"    return {change}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise GeneratorExit", "mine.py:2: GeneratorExit"),
        ("raise type('Own', (BaseException,), {})('no')", "mine.py:2: Own: no"),
        ("raise type('Mute', (Exception,), {'__str__': None})()", "mine.py:2: Mute: it has no words for itself"),
    ],
)
def test_whatever_a_file_raises_is_one_sentence(mine, text, words):
    with pytest.raises(ScheduleError, match=words):
        mine(f"def schedule(ranks, size_bytes):\n    {text}\n")


def test_stopping_by_hand_is_no_fault_of_the_file(mine):
    with pytest.raises(KeyboardInterrupt):
        mine("raise KeyboardInterrupt\n")


def test_a_coroutine_is_no_schedule(mine):
    with pytest.raises(ScheduleError, match="returns coroutine; it must return a Schedule"):
        mine("async def schedule(ranks, size_bytes):\n    pass\n")


def test_a_device_is_not_read(tmp_path):
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    with pytest.raises(ScheduleError, match="zero.py: a device or a pipe; give a Python file"):
        build_schedule("all_reduce", str(tmp_path / "zero.py"), 4, 80)


def test_numbers_equal_to_what_was_asked_for_become_it(mine):
    schedule = mine(FLAT + "    from dataclasses import replace\n    return replace(made, ranks=float(ranks))\n")
    netsim.prove(schedule)
    assert type(schedule.ranks) is int
