"""What NCCL's protocols meet on a link: read from profiles and descriptions, written back, and met by messages."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import NetsimError, ProfileError
from netsim.fabric import Link, LinkProtocols
from topologies import build
from topologies.link_protocols import protocol_items, read_protocols
from topologies.profiles import Profile, load_profile, write_profile

seconds = st.just(0.0) | st.floats(min_value=1e-15, max_value=10)
rates = st.floats(min_value=1e3, max_value=1e12)
shares = st.floats(min_value=1e-9, max_value=1)
protocols = st.sampled_from(("ll", "ll128", "simple"))
PAIR = """\
nodes: {{a: {{kind: gpu}}, b: {{kind: gpu}}}}
links:
- {{between: [a, b], latency: 1 us, bandwidth: 1 GB/s, {}}}
"""
ORDER = {"ll": 0, "ll128": 1, "simple": 2}


def pairs(values: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[tuple[str, float], ...]]:
    """Return strategies for figures by protocol, in the order in which they are written."""
    found = st.dictionaries(protocols, values)
    return found.map(lambda chosen: tuple(sorted(chosen.items(), key=lambda item: ORDER[item[0]])))


announced = st.just((0, 0.0)) | st.tuples(st.integers(1, 1 << 40), st.floats(min_value=1e-15, max_value=10))
figures = st.builds(
    lambda pair, **more: LinkProtocols(eager_bytes=pair[0], rendezvous_s=pair[1], **more),
    announced,
    latency_s=pairs(seconds),
    share=pairs(shares),
    post_s=seconds,
    spread_s=seconds,
    proxy=st.just(()) | rates.map(lambda rate: (("ll", rate),)),
)


@given(figures)
def test_what_is_written_is_read_back(made: LinkProtocols) -> None:
    assert (read_protocols(protocol_items(made)) or LinkProtocols()) == made


@given(figures.filter(protocol_items))
def test_a_profile_keeps_it(tmp_path_factory: pytest.TempPathFactory, made: LinkProtocols) -> None:
    path = tmp_path_factory.mktemp("profiles") / "x.toml"
    profile = Profile("x", "nic", 2e9, 1e9, 1e-6, "2026", "measured: here", protocols=made, protocol_source="assumed: there")
    write_profile(profile, path)
    assert load_profile(str(path)).link(count=2).protocols == made


def test_a_link_is_what_the_protocol_meets() -> None:
    met = LinkProtocols((("ll", 3e-6),), (("ll128", 0.5),), post_s=1e-6)
    link = Link(1e-6, 8e9, gap_s=2e-6, protocols=met)
    # Textbook messages meet the plain figures.
    assert link.under("ideal") == link
    ll, ll128 = link.under("ll"), link.under("ll128")
    assert (ll.latency_s, ll.bandwidth_bytes_per_s, ll.gap_s, ll.floor_s) == (3e-6, 8e9, 2e-6, 1e-6)
    assert (ll128.latency_s, ll128.bandwidth_bytes_per_s) == (1e-6, 4e9)


def test_a_description_states_it_and_is_written_with_it(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")
    from topologies.custom_text import describe

    path = tmp_path / "pair.yaml"
    path.write_text(PAIR.format("latency_ll: 2 us, share_ll128: 0.5, post: 3 us, eager: 8 KiB, rendezvous: 4 us"))
    graph = build(str(path))
    assert graph.edges["a", "b"]["link"].protocols == LinkProtocols((("ll", 2e-6),), (("ll128", 0.5),), 3e-6, 8192, 4e-6)
    path.write_text(describe(graph))
    assert build(str(path)).edges["b", "a"]["link"] == graph.edges["b", "a"]["link"]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("share_ll: 0", "share of ll on a link is 0.0; it must be above 0"),
        ("share_ll: 1.5", "share of ll on a link is 1.5"),
        ("share_ll: half", "share_ll is 'half'; write a number"),
        ("share_ll: true", "share_ll is True"),
        ("post: 3", "no unit"),
        ("eager: 8", "no unit"),
        ("spread: 1", "no unit"),
        ("proxy_ll: 0 GB/s", "proxy_ll: '0 GB/s' must be above zero"),
        ("proxy_ll: fast", "proxy_ll"),
    ],
)
def test_a_figure_that_makes_no_sense_is_refused_with_the_place(tmp_path: Path, key: str, words: str) -> None:
    pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR.format(key))
    with pytest.raises(NetsimError, match=words):
        build(str(path))


def test_figures_need_a_source() -> None:
    with pytest.raises(ProfileError, match="protocol_source is ''; what protocols meet needs one"):
        Profile("x", "nic", 2e9, 1e9, 1e-6, "2026", "measured: here", protocols=LinkProtocols(post_s=1e-6))


@pytest.mark.parametrize("keys", [{"eager": "8 KiB"}, {"rendezvous": "5 us"}])
def test_an_eager_limit_and_the_time_of_an_announcement_go_together(keys: dict[str, str]) -> None:
    with pytest.raises(NetsimError, match="^link 3: eager and rendezvous go together"):
        read_protocols(keys, "link 3")


def test_figures_that_make_no_sense_are_refused_with_their_place() -> None:
    with pytest.raises(NetsimError, match="^link 3: the share of ll on a link is 1.5"):
        read_protocols({"share_ll": 1.5}, "link 3")


def test_a_proxy_s_rate_makes_sense_in_python_too() -> None:
    with pytest.raises(NetsimError, match="the proxy's rate of ll on a link is 0.0 B/s; it must be above 0"):
        LinkProtocols(proxy=(("ll", 0.0),))
