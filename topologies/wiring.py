"""The few moves that every topology builder makes: a cable, a socket with its memory, sockets joined to each other.

Used by the builders of this package only. Deliberately left out: names of machines and where figures come from.
"""

from typing import TYPE_CHECKING

from netsim.fabric import HOST_MEMORY, ROOT_COMPLEX, Link

if TYPE_CHECKING:
    import networkx as nx

STAGING_PIECE_BYTES = 512 * 1024
"""Piece in which host memory passes on staged traffic: one step of NCCL's Simple protocol (4 MiB buffer, 8 steps)."""


def join(graph: "nx.DiGraph[str]", a: str, b: str, link: Link) -> None:
    """Lay a full-duplex cable between two nodes: the same link in each direction."""
    graph.add_edge(a, b, link=link)
    graph.add_edge(b, a, link=link)


def add_socket(graph: "nx.DiGraph[str]", root: str, memory: str, host: str, link: Link) -> None:
    """Add a root complex and its host memory, which takes messages in whole pieces before it passes them on."""
    graph.add_node(root, kind=ROOT_COMPLEX, host=host)
    graph.add_node(memory, kind=HOST_MEMORY, host=host, store_and_forward=True, piece_bytes=STAGING_PIECE_BYTES)
    join(graph, root, memory, link)
