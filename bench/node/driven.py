"""One node and the process of the client that drives it, and what the turns cost both.

Time by the wall depends on who else is there; what a unit of work takes of a processor does so
much less. So it stands in the details of every claim that counts work.
"""

from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Concatenate, ParamSpec, TypeVar

from bench.node.client import Turn
from bench.node.node import Node
from bench.node.programs import Beside

P = ParamSpec("P")
T = TypeVar("T")


class Driven:
    """Runs turns against one node; each of its ledgers is used for one turn only."""

    def __init__(self, node: Node, client: Beside) -> None:
        self.node = node
        self._client = client
        self._ledger = 1
        self._costs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    def fresh(self, ledgers: int = 1) -> int:
        """Name the first of so many ledgers that nobody has written to."""
        first = self._ledger
        self._ledger += ledgers
        return first

    def ask(self, work: Callable[Concatenate[str, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Have the client do something that is not measured."""
        return self._client.run(work, self.node.address, *args, **kwargs)

    def turn(
        self,
        name: str,
        work: Callable[Concatenate[str, P], Turn],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Turn:
        """Have the client do something, and note what it takes."""
        before_s = self.node.cpu_s()
        turn = self.ask(work, *args, **kwargs)
        node_s = self.node.cpu_s() - before_s
        self._costs[name].append((node_s / turn.done * 1e6, turn.cpu_s / turn.done * 1e6))
        return turn

    def costs(self, name: str) -> dict[str, float]:
        """Tell what one unit of such a turn takes of a processor, in microseconds."""
        node_us, client_us = zip(*self._costs[name], strict=True)
        return {"node_cpu_us": median(node_us), "client_cpu_us": median(client_us)}
