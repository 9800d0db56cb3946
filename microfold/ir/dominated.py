"""Domination: nodes whose operands are all computed from one common value, on all paths."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.match import MatchSearch, MatchState, States
from microfold.ir.node import Node, Value

Find = Callable[[Value, str, MatchState, MatchSearch], States]


class Path(Struct, frozen=True):
    """Paths from a value up to a node that reads it; see `DataflowPattern.dominates`.

    Attributes:
        parent: finds the common value.
        path: finds the nodes between; None if there must be none.
    """

    parent: Find
    path: Find | None

    def grown(self, node: Node, where: str, state: MatchState, search: MatchSearch) -> MatchState | None:
        """Return the state extended by the nodes between, if all paths lead to one parent; else None."""
        flow = search.flow
        between: set[Node] = set()
        parents: dict[Value, MatchState] = {}
        pending = [node]
        while pending:
            for value in pending.pop().operands:
                producer = flow.producer(value)
                if flow.array(value) is not None or value in parents or producer in between:
                    continue
                found = _first(self.parent, value, state, search)
                if found is not None:
                    parents[value] = found
                elif (
                    producer is not None and self.path is not None and _first(self.path, value, state, search)
                ):
                    between.add(producer)
                    pending.append(producer)
                else:
                    search.refuse(state, where, "come from the parent on all paths", search.origin(value))
                    return None
        if len(parents) != 1:
            names = ", ".join(f"%{value.name}" for value in parents) or "none"
            search.refuse(state, where, "come from one parent", f"there are {names}")
            return None
        ((parent, found),) = parents.items()
        inside = _in_order(node, between, search)
        for value in (parent, *(value for each in inside for value in each.outputs)):
            if flow.readers(value) > sum(each.operands.count(value) for each in (node, *inside)):
                rule = "be the only reader of the parent and the nodes between"
                search.refuse(state, where, rule, f"something else reads {value!r}")
                return None
        # The node itself has been matched before, and remains the last one.
        above = tuple(each for each in found.nodes if each not in state.nodes)
        return replace(found, nodes=(*above, *inside, *state.nodes))


def _first(find: Find, value: Value, state: MatchState, search: MatchSearch) -> MatchState | None:
    """Return the first match of a value, without a report of mismatches."""
    return next(find(value, f"%{value.name}", state, MatchSearch(search.flow)), None)


def _in_order(node: Node, between: Collection[Node], search: MatchSearch) -> list[Node]:
    """Return the nodes between in topological order."""
    order: dict[Node, None] = {}
    pending = [node]
    while pending:
        each = pending[-1]
        above = [search.flow.producer(value) for value in each.operands]
        missing = [n for n in above if n is not None and n in between and n not in order]
        pending += missing
        if not missing:
            order[pending.pop()] = None
    return [each for each in order if each is not node]
