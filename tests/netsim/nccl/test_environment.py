from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import NetsimError
from netsim.nccl.availability import Options
from netsim.nccl.environment import allowed, notes, read_assignments, settings, tuner_options
from netsim.nccl.settings import DEFAULT_SETTINGS, Settings
from netsim.nccl.tuner_constants import ALGORITHMS, PROTOCOLS
from netsim.nccl.version import Version

OLD = Version(2, 23, 4)


def pairs(algorithms: str, protocols: str = "ll ll128 simple") -> set[tuple[str, str]]:
    return {(algorithm, protocol) for algorithm in algorithms.split() for protocol in protocols.split()}


def one_sentence(call: Callable[[], object]) -> str:
    with pytest.raises(NetsimError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_without_variables_everything_is_allowed() -> None:
    assert allowed({}, "all_reduce") is None
    assert allowed({"NCCL_ALGO": "", "NCCL_PROTO": " "}, "all_reduce") is None


@pytest.mark.parametrize("version", [OLD, Version(2, 24), Version(2, 30, 7)])
def test_a_list_names_what_may_run_and_case_does_not_matter(version: Version) -> None:
    assert allowed({"NCCL_ALGO": "RING,tree"}, "all_reduce", version) == pairs("ring tree")
    assert allowed({"NCCL_PROTO": "Simple"}, "broadcast", version) == pairs(" ".join(ALGORITHMS), "simple")
    both = {"NCCL_ALGO": "NVLSTree,CollNetDirect", "NCCL_PROTO": "ll,LL128"}
    assert allowed(both, "all_reduce", version) == pairs("nvls_tree collnet_direct", "ll ll128")


def test_a_caret_takes_all_names_behind_it_away() -> None:
    assert allowed({"NCCL_ALGO": "^NVLS,NVLSTree,PAT"}, "all_reduce") == pairs("tree ring collnet_direct collnet_chain")
    assert allowed({"NCCL_ALGO": "ring", "NCCL_PROTO": "^LL128"}, "all_reduce") == pairs("ring", "ll simple")


def test_lists_of_functions_count_for_their_function_only() -> None:
    environment = {"NCCL_ALGO": "allreduce:tree;AllGather:^ring"}
    assert allowed(environment, "all_reduce") == pairs("tree")
    assert allowed(environment, "all_gather") == pairs(" ".join(set(ALGORITHMS) - {"ring"}))
    assert allowed(environment, "broadcast") is None


def test_the_first_list_may_be_for_all_and_a_later_one_replaces_it() -> None:
    environment = {"NCCL_PROTO": "simple;allreduce:ll"}
    assert allowed(environment, "reduce") == pairs(" ".join(ALGORITHMS), "simple")
    assert allowed(environment, "all_reduce") == pairs(" ".join(ALGORITHMS), "ll")


def test_what_nccl_sends_message_by_message_is_not_restricted() -> None:
    assert allowed({"NCCL_ALGO": "ring"}, "alltoall") is None


@pytest.mark.parametrize(
    ("value", "version", "words"),
    [
        ("rnig", Version(2, 28), "'rnig' is no algorithm of NCCL (did you mean Ring?); accepted are Tree, Ring"),
        ("rnig", OLD, "did you mean Ring?"),
        ("nvls_tree", Version(2, 28), "did you mean NVLSTree?"),
        ("ring, tree", Version(2, 28), "' tree' is no algorithm of NCCL (did you mean Tree?)"),
        ("ring,^tree", Version(2, 28), "a ^ stands once, before all names"),
        ("everything:ring", Version(2, 28), "'everything' is no function of NCCL; accepted are Broadcast, Reduce"),
        ("alreduce:ring", Version(2, 28), "did you mean AllReduce?"),
        ("allgather:nvls,reducescatter:nvls", Version(2, 28), "separated by semicolons"),
        ("allreduce:ring;tree", Version(2, 28), "only the first list may be without a function, not 'tree'"),
        ("allreduce:", Version(2, 28), "names no algorithm"),
        (",", Version(2, 28), "names no algorithm"),
        ("allreduce:ring", OLD, "NCCL knows from 2.24 on, not 2.23.4"),
    ],
)
def test_a_list_that_nccl_does_not_understand_is_refused(value: str, version: Version, words: str) -> None:
    said = one_sentence(lambda: allowed({"NCCL_ALGO": value}, "all_reduce", version))
    assert said.startswith("NCCL_ALGO=")
    assert words in said


def test_a_mistake_in_another_functions_list_is_refused_too() -> None:
    assert "'LL129'" in one_sentence(lambda: allowed({"NCCL_PROTO": "reduce:LL129"}, "all_reduce"))


def test_the_command_line_has_the_same_form_both_namings_and_precedence() -> None:
    environment = {"NCCL_ALGO": "tree", "NCCL_PROTO": "simple"}
    assert allowed(environment, "all_reduce", algorithms="nvls_tree,NVLS") == pairs("nvls_tree nvls", "simple")
    assert allowed(environment, "all_reduce", algorithms="auto", protocols="ll") == pairs("tree", "ll")
    assert allowed({}, "all_gather", OLD, algorithms="all_gather:ring;allreduce:tree") == pairs("ring")
    assert one_sentence(lambda: allowed({}, "all_reduce", algorithms="rong")).startswith("--algo='rong'")
    assert one_sentence(lambda: allowed({}, "all_reduce", protocols="ideal")).startswith("--proto='ideal'")


@given(st.sets(st.sampled_from(ALGORITHMS), min_size=1), st.sets(st.sampled_from(PROTOCOLS), min_size=1))
def test_a_list_and_its_complement_leave_the_same(algorithms: set[str], protocols: set[str]) -> None:
    rest = set(ALGORITHMS) - algorithms, set(PROTOCOLS) - protocols
    named = allowed({}, "reduce", algorithms=",".join(algorithms), protocols=",".join(protocols))
    # A ^ with nothing behind it is refused; what excludes nothing is the list of all.
    every = ",".join(ALGORITHMS), ",".join(PROTOCOLS)
    excluded = ["^" + ",".join(names) if names else whole for names, whole in zip(rest, every, strict=True)]
    without = allowed({}, "reduce", algorithms=excluded[0], protocols=excluded[1])
    assert named == without == {(algorithm, protocol) for algorithm in algorithms for protocol in protocols}


def test_assignments_are_read_and_the_later_one_counts() -> None:
    texts = ["NCCL_ALGO=ring", "NCCL_PROTO=LL,Simple", "NCCL_ALGO=allreduce:tree;broadcast:ring", "NCCL_IB_HCA==mlx5_0:1"]
    assert read_assignments(texts) == {
        "NCCL_ALGO": "allreduce:tree;broadcast:ring",
        "NCCL_PROTO": "LL,Simple",
        "NCCL_IB_HCA": "=mlx5_0:1",
    }


def test_a_file_of_assignments_is_read_between_the_others(repository: Path) -> None:
    path = str(repository / "tests" / "data" / "nccl.conf")
    assert read_assignments(["NCCL_DEBUG=INFO", "NCCL_BUFFSIZE=65536", path, "NCCL_MAX_NCHANNELS=4"]) == {
        "NCCL_DEBUG": "WARN",
        "NCCL_BUFFSIZE": "65536",
        "NCCL_ALGO": "allreduce:ring,tree;broadcast:ring",
        "NCCL_PROTO": "^LL128",
        "NCCL_MAX_NCHANNELS": "4",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NCCL_AGLO=ring", "'NCCL_AGLO' is no variable of NCCL (did you mean NCCL_ALGO?)"),
        ("nccl_algo=ring", "did you mean NCCL_ALGO?"),
        ("NCCL_NVLS_ENABEL=0", "did you mean NCCL_NVLS_ENABLE?"),
        ("PATH=/bin", "'PATH' is no variable of NCCL"),
        ("NCCL_ALGO", "NCCL_ALGO has no value; accepted is NCCL_ALGO=VALUE"),
        ("no such file", "'no such file' is neither NAME=VALUE nor a file"),
        ("", "'' is neither"),
        ("=", "'=' is neither"),
        ("\0", "is neither"),
        ("a" * 5000, "is neither"),
    ],
)
def test_what_is_no_assignment_is_refused(text: str, words: str) -> None:
    said = one_sentence(lambda: read_assignments([text]))
    assert said.startswith("--nccl-env: ")
    assert words in said


def test_mistakes_in_a_file_are_told_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "env.txt"
    path.write_text("HOME=/root\n\nNCCL_ALGOS=ring\n", encoding="utf-8")
    assert f"{path}, line 3: 'NCCL_ALGOS'" in one_sentence(lambda: read_assignments([str(path)]))
    path.write_text("NCCL_ALGO ring\n", encoding="utf-8")
    assert f"{path}, line 1: 'NCCL_ALGO ring' has no value" in one_sentence(lambda: read_assignments([str(path)]))
    assert "it is a folder, not a file" in one_sentence(lambda: read_assignments([str(tmp_path)]))


def test_quotes_that_no_shell_takes_away_stay(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text('NCCL_ALGO="ring"\n', encoding="utf-8")
    assert read_assignments([str(path)]) == {"NCCL_ALGO": '"ring"'}


def test_variables_that_do_not_bear_on_the_result_are_told() -> None:
    said = notes({"NCCL_ALGO": "ring", "NCCL_DEBUG": "INFO", "NCCL_TESTS_DEVICE": "1", "NCCL_SHM_DISABLE": "1"})
    assert said == [
        "NCCL_SHM_DISABLE=1 is not modelled and is ignored; NCCL takes from it: whether GPUs of a host use the network "
        "instead of host memory",
        "NCCL_DEBUG, NCCL_TESTS_DEVICE do not change what is sent when, so they are ignored",
    ]
    assert notes({"NCCL_ALGO": "ring"}) == []


def test_a_suffix_is_refused_because_nccl_would_not_see_it() -> None:
    assert "NCCL knows no suffixes and would read 4" in one_sentence(lambda: settings({"NCCL_BUFFSIZE": "4M"}))


def test_settings_hold_what_is_given_and_nccls_defaults_else() -> None:
    assert settings({}) == DEFAULT_SETTINGS
    given = {
        "NCCL_MIN_NCHANNELS": "4",
        "NCCL_MAX_NCHANNELS": "16",
        "NCCL_MIN_CTAS": "2",
        "NCCL_MAX_CTAS": "12",
        "NCCL_NVLS_NCHANNELS": "8",
        "NCCL_NTHREADS": "256",
        "NCCL_LL128_NTHREADS": "320",
        "NCCL_BUFFSIZE": "8388608",
        "NCCL_LL_BUFFSIZE": "65536",
        "NCCL_LL128_BUFFSIZE": "983040",
        "NCCL_NVLS_CHUNKSIZE": "65536",
        "NCCL_NVLSTREE_MAX_CHUNKSIZE": "32768",
    }
    assert settings(given) == Settings(4, 16, 2, 12, 8, 256, 320, 8388608, 65536, 983040, 65536, 32768)


def test_old_names_of_channels_count_where_the_new_ones_are_not_given() -> None:
    assert settings({"NCCL_MIN_NRINGS": "3"}).min_channels == 3
    assert settings({"NCCL_MIN_NRINGS": "3", "NCCL_MIN_NCHANNELS": "5"}).min_channels == 5


def test_minus_two_and_no_threads_are_nccls_default() -> None:
    assert settings({"NCCL_MIN_NCHANNELS": "-2", "NCCL_NTHREADS": "0", "NCCL_BUFFSIZE": "-2"}) == DEFAULT_SETTINGS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_MAX_NCHANNELS", "0"),
        ("NCCL_MIN_NCHANNELS", "-1"),
        ("NCCL_BUFFSIZE", "100"),
        ("NCCL_NVLS_NCHANNELS", "many"),
        ("NCCL_NVLS_CHUNKSIZE", "1"),
        ("NCCL_NTHREADS", "99999999999"),
    ],
)
def test_settings_that_nccl_cannot_take_are_refused(name: str, value: str) -> None:
    said = one_sentence(lambda: settings({name: value}))
    assert name in said
    assert "whole number" in said


def test_options_of_the_tuner_hold_what_is_given() -> None:
    assert tuner_options({}) == Options()
    # NCCL_NET_OVERHEAD is in nanoseconds.
    given = {"NCCL_NET_OVERHEAD": "2500", "NCCL_PAT_ENABLE": "0", "NCCL_LL128_C2C": "0"}
    assert tuner_options(given, datatype="half") == Options("half", net_overhead_us=2.5, pat_enable=0, ll128_c2c=False)
    assert "NCCL_PAT_ENABLE='3'" in one_sentence(lambda: tuner_options({"NCCL_PAT_ENABLE": "3"}))


@pytest.mark.parametrize(
    ("value", "collective", "forced"),
    [
        ("LL128", "all_reduce", True),
        ("^LL", "all_reduce", True),
        ("LL,Simple", "all_reduce", False),
        ("^LL128", "all_reduce", False),
        ("broadcast:LL128", "broadcast", True),
        ("broadcast:LL128", "all_reduce", False),
    ],
)
def test_ll128_is_forced_where_a_list_leaves_it(value: str, collective: str, forced: bool) -> None:
    assert tuner_options({"NCCL_PROTO": value}, collective).ll128_forced is forced


def test_ll128_is_forced_from_the_command_line_too() -> None:
    assert tuner_options({"NCCL_PROTO": "LL"}, protocols="ll128").ll128_forced


def test_of_ctas_the_most_counts_where_the_least_is_above_it() -> None:
    given = settings({"NCCL_MIN_CTAS": "20", "NCCL_MAX_CTAS": "4"})
    assert (given.min_ctas, given.max_ctas) == (4, 4)
    assert settings({"NCCL_MIN_CTAS": "20"}).min_ctas == 20


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_CTA_POLICY", "abc", "whole number from 0 to 2"),
        ("NCCL_CTA_POLICY", "3", "whole number from 0 to 2"),
        ("NCCL_SYM_CTAS", "65", "whole number from 0 to 64"),
        ("NCCL_SYM_CE_THRESHOLD", "much", "whole number from 0"),
        ("NCCL_COLLNET_NODE_THRESHOLD", "-1", "whole number from 0"),
        ("NCCL_PAT_ENABLE", "9", "whole number from 0 to 2"),
        ("NCCL_LL128_C2C", "7", "whole number from 0 to 1"),
    ],
)
def test_what_only_some_runs_read_is_checked_in_all(name: str, value: str, words: str) -> None:
    with pytest.raises(NetsimError, match=words):
        settings({name: value})


def test_a_policy_that_is_not_modelled_is_told() -> None:
    (words,) = notes({"NCCL_CTA_POLICY": "1"})
    assert words.startswith("NCCL_CTA_POLICY=1 is not modelled")
    assert notes({"NCCL_CTA_POLICY": "2"}) == []
