"""From a name to a topology: presets, study graphs and files, and the list of what there is.

The one door through which the command line, scenarios and Python users get a topology. A name is, in this order, a
preset, a study graph's text (``ideal-...``), or a path to a file (``.xml`` NCCL topology, ``.yaml`` or ``.yml`` nodes
and links; any other is looked into for the text of `nvidia-smi topo -m` or `rocm-smi --showtopo`). Nothing here knows
what a machine consists of.
"""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from netsim.errors import FabricError, ProfileError
from netsim.fabric import Link, check_fabric, hosts_of, ranks_of
from topologies.cluster import cluster
from topologies.nics import parse_nic
from topologies.plans import SERVERS
from topologies.profiles import RATES, Profile, family_of, load_profile
from topologies.server import server
from topologies.study import ACCEPTED, is_study_text, study_graph

if TYPE_CHECKING:
    import networkx as nx

_FILE_FORMS = "a file: .xml (NCCL topology), .yaml (nodes and links) or the text of `nvidia-smi topo -m`"


def preset_names() -> dict[str, str]:
    """Return the name of every preset, each with a line that says what it is."""
    return {name: plan.description for name, plan in SERVERS.items()}


def build(
    name_or_path: str,
    *,
    nodes: int = 1,
    nic: str | None = None,
    fabric: str = "one-switch",
    gpus_per_node: int | None = None,
    gpudirect: bool = True,
    rate: str = "effective",
    profile: str | None = None,
) -> "nx.DiGraph[str]":
    """Build a topology.

    Parameters
    ----------
    name_or_path : str
        A preset, a study graph's text, or a path to an NCCL topology (``.xml``), a description (``.yaml``) or a file that
        holds the text of `nvidia-smi topo -m` or `rocm-smi --showtopo`.
    nodes : int
        Number of machines; more than one are joined by a network.
    nic : str, optional
        NIC profile, one NIC a GPU unless options say otherwise (``ndr400:nics=4``); see `topologies.nics`.
    fabric : str
        The network between machines, for example ``rails`` or ``leaf-spine:leaves=2,spines=4``; see
        `topologies.fabrics`.
    gpus_per_node : int, optional
        Only the first so many GPUs of each machine are ranks; the others stay in the graph and do nothing.
    gpudirect : bool
        False: all traffic between a GPU and another host is staged in host memory; True: by NCCL's distance rule.
    rate : {"effective", "line"}
        Which rate of the link profiles to use.
    profile : str, optional
        A link profile, by name or path, that replaces the figures of every link of its family (``nvlink``, ``pcie``,
        ``nic``, ...): each such edge keeps its count and, for PCI Express, its width, and takes rates, latency, gap and
        floor from this profile. Links whose kind is not a known profile (study graphs, figures written in a file) stay.
        Several, one for each family, have commas between them.

    Returns
    -------
    networkx.DiGraph
        Frozen; ``graph.copy()`` is one to change. Passes `netsim.fabric.check_fabric`; graph attributes ``name``,
        ``ranks``, ``gpudirect``, ``remarks``, and ``nodes``, ``rate`` and ``profile`` as asked for.

    Raises
    ------
    FabricError, ProfileError, UnitError
        One sentence with the value, the place and what is accepted.

    Examples
    --------
    >>> graph = build("hgx-h100", nodes=2, nic="ndr400")
    >>> len(graph.graph["ranks"]), graph.graph["name"]
    (16, 'hgx-h100 x 2, ndr400')
    """
    import networkx as nx

    name = str(name_or_path)
    if rate not in RATES:
        raise FabricError(f"rate {rate!r} is unknown; accepted are {' and '.join(RATES)}")
    if is_study_text(name) and (nodes != 1 or nic is not None):
        raise FabricError(
            f"topology {name!r} is a study graph and whole as it is; several nodes and NICs need a machine: "
            f"{', '.join(SERVERS)} or {_FILE_FORMS}"
        )
    figures = _profiles(profile)
    machine = _one_machine(name, rate, figures)
    title = str(machine.graph.get("name") or name)
    # A description written by hand may say itself that there is no GPUDirect.
    direct = gpudirect and bool(machine.graph.get("gpudirect", True))
    ports = figures.get("nic")
    graph = cluster(lambda: machine, nodes=nodes, nic=nic, fabric=fabric, gpudirect=direct, rate=rate, port_profile=ports)
    if gpus_per_node is not None:
        _keep_first(graph, gpus_per_node, nodes)
    # Ports have the profile's figures already, times as many as a NIC joins to one way.
    laid = frozenset(
        data["port"] for _, data in graph.nodes(data=True) if ports is not None and data.get("port") is not None
    )
    for stated in figures.values():
        _replace_links(graph, stated, rate, laid)
    title += f" x {nodes}" if nodes > 1 else ""
    title += f", {parse_nic(nic).label}" if nic is not None else ""
    title += f", {fabric}" if fabric != "one-switch" else ""
    graph.graph["name"] = title
    graph.graph |= {"nodes": nodes, "rate": rate, "profile": profile}
    graph.graph.setdefault("remarks", ())
    check_fabric(graph)
    frozen: nx.DiGraph[str] = nx.freeze(graph)
    return frozen


def _profiles(text: str | None) -> dict[str, Profile]:
    """Load the link profiles that the user states, by family."""
    figures: dict[str, Profile] = {}
    for name in text.split(",") if text is not None else ():
        profile = load_profile(name.strip())
        if profile.family in figures:
            raise ProfileError(
                f"profiles {figures[profile.family].name!r} and {profile.name!r} are both of the family {profile.family!r}; "
                "give one for each family"
            )
        figures[profile.family] = profile
    return figures


def _one_machine(name: str, rate: str, profiles: dict[str, Profile]) -> "nx.DiGraph[str]":
    """Build a preset, a study graph or what a file describes; a text without rates takes them from the profiles."""
    if name in SERVERS:
        graph = server(name, rate=rate)
        graph.graph["name"] = name
        return graph
    if is_study_text(name):
        return study_graph(name)
    suffix = Path(name).suffix.lower()
    if suffix == ".xml":
        from topologies.nccl_xml import load_nccl_xml

        return load_nccl_xml(name, rate=rate, stated=profiles)
    if suffix in (".yaml", ".yml"):
        from topologies.custom import load_custom

        graph = load_custom(name, rate=rate)
        graph.graph["name"] = graph.graph["name"] or Path(name).stem
        return graph
    if name and Path(name).exists():
        from topologies.smi_matrix import load_matrix

        return load_matrix(name, rate=rate, profiles=profiles)
    if suffix or "/" in name:
        raise FabricError(
            f"topology {name!r}: there is no such file; those that can be read end in .xml (NCCL topology), .yaml or .yml, "
            "or hold the text of `nvidia-smi topo -m` or `rocm-smi --showtopo`"
        )
    close = difflib.get_close_matches(name, SERVERS, n=3, cutoff=0.5)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    known = ", ".join(SERVERS)
    raise FabricError(f"unknown topology {name!r}{hint}; accepted are {known}, a study graph ({ACCEPTED}) or {_FILE_FORMS}")


def _keep_first(graph: "nx.DiGraph[str]", gpus: int, nodes: int) -> None:
    """Make ranks of the first GPUs of each machine only."""
    ranks = ranks_of(graph)
    groups = hosts_of(graph) if nodes > 1 else (tuple(range(len(ranks))),)
    least = min(len(group) for group in groups)
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= least:
        raise FabricError(
            f"gpus_per_node is {gpus!r}; machines of this topology have {least} GPUs: 1 to {least} are accepted"
        )
    graph.graph["ranks"] = tuple(ranks[rank] for group in groups for rank in group[:gpus])


def _replace_links(graph: "nx.DiGraph[str]", profile: Profile, rate: str, laid: frozenset[Link] = frozenset()) -> None:
    """Give every link of the profile's family, but those laid, its figures, keeping counts and PCI Express widths."""
    made: dict[Link, Link | None] = {}
    own = profile.link(rate).kind
    replaced = False
    for _, _, data in graph.edges(data=True):
        link: Link = data["link"]
        if link not in made:
            made[link] = None if link in laid else _like(link, profile, rate)
        new = made[link]
        if new is not None:
            data["link"] = new
        # A loader may have used the profile already, under a name that only the user knows.
        replaced = replaced or new is not None or link.kind == own
    if not replaced:
        families = sorted({family for link in made if (family := family_of(link.kind)) is not None})
        raise ProfileError(
            f"profile {profile.name!r} is of the family {profile.family!r}, of which this topology has no link; "
            f"it has {', '.join(families) or 'no link that comes from a profile'}"
        )


def _like(link: Link, profile: Profile, rate: str) -> Link | None:
    """Return the link that stands in for `link` under a profile; None if it is of another family."""
    if family_of(link.kind) != profile.family:
        return None
    head, mark, width = link.kind.rpartition("_x")
    if mark and width.isdigit() and profile.lanes is not None and family_of(head) == "pcie" and head != profile.name:
        return profile.link(rate, count=link.count, lanes=int(width))
    return profile.link(rate, count=link.count)
