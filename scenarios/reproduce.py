"""Does the simulator arrive at the numbers of the article behind this project, from the first link to its beliefs?

Answer: yes, to the last digit that is stated, by simulation and not by a formula beside it, apart from lines that say why:
a formula without a pipeline, a single measured point, a range in round numbers, and what no simulator of links can know.
`netsim reproduce` prints the table (the lines stand in ``article_*.py``); the column `scenario` names the file of this
folder in which a number can be looked up and changed.
"""

from collections.abc import Iterator

from scenarios.article import Line
from scenarios.article_collectives import collective_lines
from scenarios.article_links import link_lines, machine_lines
from scenarios.article_ring import belief_lines, ring_lines
from scenarios.article_tensor_parallel import tensor_parallel_lines

COLUMNS = ("section", "what", "unit", "stated", "simulated", "difference", "verdict", "scenario", "note")


def lines() -> Iterator[Line]:
    """Yield every line, section by section."""
    for section in (link_lines, ring_lines, collective_lines, tensor_parallel_lines, machine_lines, belief_lines):
        yield from section()


def rows() -> Iterator[tuple[object, ...]]:
    """Yield the lines as rows of a CSV."""
    return (line.row for line in lines())
