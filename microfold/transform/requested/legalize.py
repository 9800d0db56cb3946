"""Replaces operators by what the user's rules give for them.

    %y: float32[4] = hard_swish(%x)      ->      %a: float32[4] = add(%x, %three)
                                                 %b: float32[4] = clip(%a) {minimum=0.0, maximum=6.0}
    (with a rule for hard_swish)                 %c: float32[4] = mul(%x, %b)
                                                 %y: float32[4] = mul(%c, %sixth)

A rule is that of `forward_rewrite`: it gets the place in the graph and answers with what stands for the
results, or with None to leave the node. It is not applied to what it has made. What it makes has the types of
what it replaces; whether it has the same bits is up to the rule. TVM calls this Legalize in Relay and
LegalizeOps, with a customised map, in Relax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Value, describe
from microfold.ir.op import REGISTRY, Op
from microfold.ir.rewrite import RewriteSite, Rule, forward_rewrite
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.support.frozen import frozen

Rules = Mapping[type[Op] | str, Rule[None]]


@function_pass(opt_level=0)
@frozen
class Legalize:
    """Apply a map of rules.

    Attributes:
        rules: per operator, by its class (a base class stands for its subclasses) or its name in the text.

    Raises:
        InputError: a name is that of no operator, or a rule gives other types than those it replaces.
    """

    rules: Rules = field(default_factory=dict)

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        rules = {_op_type(op): _checked(rule, context) for op, rule in self.rules.items()}
        return forward_rewrite(graph, rules)


def _op_type(op: type[Op] | str) -> type[Op]:
    if isinstance(op, str) and op not in REGISTRY:
        raise InputError(f"rules are for operators; {op!r} is none of {', '.join(sorted(REGISTRY))}")
    return REGISTRY[op] if isinstance(op, str) else op


def _checked(rule: Rule[None], context: PassContext) -> Rule[None]:
    """The rule, its answers recorded and held against the types of what they replace."""

    def legalize(site: RewriteSite[None]) -> Sequence[Value] | None:
        answer = rule(site)
        if answer is None:
            context.declined(site.node, "its rule leaves it")
            return None
        results = tuple(answer) if isinstance(answer, Sequence) else (answer,)
        values = tuple(site.builder.value(result) for result in results)
        expected = tuple(value.type for value in site.node.outputs)
        given = tuple(value.type for value in values)
        if given != expected:
            raise InputError(
                f"a rule must keep the types; that for {describe(site.node)} gives "
                f"({', '.join(map(str, given))}) for ({', '.join(map(str, expected))})"
            )
        context.fired(site.node, "by its rule")
        return values

    return legalize
