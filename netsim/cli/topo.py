"""``netsim topo``: which machines there are, what is in one, what looks wrong with it, and one's own as a file to edit."""

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from netsim import __version__
from netsim.cli import nccl_options, options
from netsim.errors import NetsimError
from netsim.units import format_rate, format_time
from scenarios.machine import Machine, graph_of

if TYPE_CHECKING:
    from netsim.fabric import Link

EXAMPLE = "netsim topo list"
SHOW_EXAMPLE = "netsim topo show hgx-h100 --nodes 2 --nic ndr400 --graph"
CHECK_EXAMPLE = "netsim topo check ideal-switch:8@450GB/s,1us"
IMPORT_EXAMPLE = "netsim topo import dgx-1v"

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List machines, show what is in one, check one for what looks wrong, write one as a file to edit.",
    epilog=f"\b\nExample:\n  {EXAMPLE}",
)
Name = options.TopologyArgument


@app.command("list", epilog=f"\b\nExample:\n  {EXAMPLE}")
def list_() -> None:
    """List presets, study graphs and link profiles."""
    import topologies

    presets = topologies.preset_names()
    width = max(map(len, presets))
    for name, description in presets.items():
        print(f"{name:<{width}}  {description}")
    print(f"link profiles (--nic, --profile): {' '.join(topologies.profile_names())}")
    print("a file works too: .xml (NCCL topology dump), .yaml (nodes and links), or the text of `nvidia-smi topo -m` or")
    print("`rocm-smi --showtopo`, which tells no rates: --profile nvlink4,pcie5 states them")


@app.command(epilog=f"\b\nExample:\n  {SHOW_EXAMPLE}")
@options.gathers(machine=options.named_machine)
def show(
    machine: Machine,
    graphs: Annotated[
        bool,
        typer.Option(
            "--graph", help="In place of links: what NCCL finds here: its graphs, rings, trees, heads and channels."
        ),
    ] = False,
    dump: Annotated[
        str | None,
        typer.Option("--dump-graph", help="Also write the graphs to this file, as NCCL_GRAPH_DUMP_FILE; implies --graph."),
    ] = None,
    nccl_version: nccl_options.NcclVersion = None,
    nccl_env: nccl_options.NcclEnv = None,
) -> None:
    """Print a machine's ranks, nodes and links, equal links together; or what NCCL makes of it."""
    from netsim.fabric import hosts_of, topology_digest

    if graphs or dump is not None:
        _show_graphs(machine, dump, nccl_version, nccl_env)
        return
    if nccl_version is not None or nccl_env:
        raise NetsimError("--nccl-version and --nccl-env change only what NCCL finds; give --graph with them")
    graph = graph_of(machine)
    kinds = Counter(kind for _, kind in graph.nodes(data="kind"))
    hosts = hosts_of(graph)
    ranks, servers = sum(map(len, hosts)), f"{len(hosts)} server{'s' * (len(hosts) != 1)}"
    print(f"{machine.topology}: {ranks} ranks on {servers}, {machine.rate} rates")
    print(f"nodes: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")
    print(f"links (each direction): {graph.number_of_edges()}")
    alike: Counter[tuple[str, str, Link]] = Counter()
    link: Link
    for source, target, link in graph.edges(data="link"):
        alike[graph.nodes[source]["kind"], graph.nodes[target]["kind"], link] += 1
    for (from_kind, to_kind, kind), count in alike.items():
        print(f"  {count:>6} x {from_kind} -> {to_kind}: {_link_words(kind)}")
    print(f"digest: {topology_digest(graph)}")
    for remark in graph.graph.get("remarks", ()):
        print(f"remark: {remark}")


def _show_graphs(machine: Machine, dump: str | None, version: str | None, environment: list[str] | None) -> None:
    """Print what NCCL finds on a machine, and write its graphs where a file is named."""
    from netsim.export.files import write_whole
    from netsim.fabric import ranks_of
    from netsim.nccl.dump import format_dump
    from netsim.nccl.system import node_systems
    from netsim.nccl.words import graph_lines
    from scenarios.nccl import NcclOptions, communicator_of

    target = None if dump is None else options.target_of(dump, "--dump-graph", "graph.xml")
    graph = graph_of(machine)
    ranks = len(ranks_of(graph))
    told = NcclOptions(NcclOptions.version if version is None else version, tuple(environment or ()))
    found = communicator_of(machine, told)
    lines = list(graph_lines(found))
    if target is not None:
        write_whole(target, format_dump(found.graphs))
    print(f"{options.machine_words(machine, graph, ranks)}, as NCCL {found.version} sees it")
    for line in lines:
        print(line)
    systems = node_systems(graph, version=found.version).systems
    for remark in dict.fromkeys(text for system in systems for text in system.assumptions):
        print(f"remark: {remark}")
    nccl_options.mention_variables(environment or [])


@app.command(epilog=f"\b\nExample:\n  {CHECK_EXAMPLE}")
@options.gathers(machine=options.named_machine)
def check(machine: Machine) -> int:
    """Say what looks wrong with a machine; exit code 1 if anything does."""
    import topologies
    from netsim.errors import DisconnectedError
    from netsim.fabric import ranks_of

    try:
        graph = graph_of(machine)
    except DisconnectedError as error:
        print(f"remark: {error}")
        return 1
    remarks = topologies.remarks(graph)
    for remark in remarks:
        print(f"remark: {remark}")
    if not remarks:
        print(f"{machine.topology}: nothing looks wrong ({len(ranks_of(graph))} ranks, {graph.number_of_edges()} links)")
    return 1 if remarks else 0


@app.command("import", epilog=f"\b\nExample:\n  {IMPORT_EXAMPLE}")
def import_(
    topology: Name,
    output: Annotated[str | None, typer.Option("-o", "--output", help="File to write, .yaml; stdout without it.")] = None,
    rate: options.Rate = "effective",
    profile: options.Profile = None,
) -> None:
    """Write a machine as nodes and links in YAML, to be edited and used wherever a preset is."""
    from netsim.export.files import write_whole
    from topologies.custom_text import describe

    target = None if output is None else options.target_of(output, "--output", "mine.yaml")
    if target is not None and target.suffix.lower() not in (".yaml", ".yml"):
        raise NetsimError(f"--output: {output!r} must end in .yaml or .yml, or it could not be read as a topology again")
    graph = graph_of(Machine(topology, rate=rate, profile=profile))
    remarks = graph.graph["remarks"]
    text = describe(graph, rate=rate, heading=f"{topology}, {rate} rates, as netsim {__version__} reads it")
    if target is None:
        sys.stdout.write(text)
    else:
        write_whole(target, text)
    for remark in remarks:
        print(f"remark: {remark}", file=sys.stderr)


def _link_words(link: "Link") -> str:
    words = [format_rate(link.bandwidth_bytes_per_s), format_time(link.latency_s)]
    if link.count > 1:
        words.append(f"{link.count} in parallel")
    if link.gap_s:
        words.append(f"gap {format_time(link.gap_s)}")
    if link.floor_s:
        words.append(f"floor {format_time(link.floor_s)}")
    if link.line_rate_bytes_per_s and link.line_rate_bytes_per_s != link.bandwidth_bytes_per_s:
        words.append(f"line rate {format_rate(link.line_rate_bytes_per_s)}")
    if link.kind:
        words.append(link.kind)
    return ", ".join(words)
