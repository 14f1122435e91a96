import pytest

from netsim.nccl.ceiling import Ceiling
from netsim.nccl.channel_search import Rules
from netsim.nccl.graphs import RING_PATTERN
from netsim.nccl.paths import NVL, PIX, SYS, Paths, Reach
from netsim.nccl.search import GraphSearch
from netsim.nccl.system import node_systems
from topologies import build


def node(topology: str) -> Paths:
    return Paths(node_systems(build(topology)).systems[0], Reach(p2p=SYS))


def ring_at(speed: int, type_intra: int = NVL) -> Rules:
    return Rules(RING_PATTERN, speed, speed, type_intra, PIX, 0, True, 1, 32)


def test_rings_are_as_many_as_a_gpu_can_send() -> None:
    # 370.8 / 60 = 6 and 370.8 / 40 = 9; a ring of eight takes 16 hops over the switch.
    ceiling = Ceiling(node("hgx-h100"))
    assert ceiling.of(ring_at(60_000)) == (6, 16)
    assert ceiling.of(ring_at(40_000)) == (9, 16)


def test_rings_are_as_many_as_pass_between_sockets() -> None:
    # 16 / 15 = 1 and 16 / 5 = 3 leave a socket, though 24 / 5 = 4 leave a GPU; the shortest paths have 2 hops.
    ceiling = Ceiling(node("pcie-gen4-8"))
    assert ceiling.of(ring_at(15_000, SYS)) == (1, 16)
    assert ceiling.of(ring_at(5_000, SYS)) == (3, 16)


@pytest.mark.parametrize("topology", ["hgx-h100", "dgx-1v", "rtx4090-4"])
def test_what_is_left_out_would_have_found_nothing(topology: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = node(topology)
    fast = GraphSearch(paths).ring()
    monkeypatch.setattr(Ceiling, "in_vain", lambda *_: False)
    monkeypatch.setattr(Ceiling, "of", lambda *_: (None, 0))
    assert GraphSearch(paths).ring() == fast
