"""Replaces operators according to rules that the user provides.

    %y: float32[4] = hard_swish(%x)      ->      %a: float32[4] = add(%x, %three)
                                                 %b: float32[4] = clip(%a) {minimum=0.0, maximum=6.0}
    (with a rule for hard_swish)                 %c: float32[4] = mul(%x, %b)
                                                 %y: float32[4] = mul(%c, %sixth)

Rules have the interface of `forward_rewrite`: a rule receives the rewrite site and returns the new results,
or None to leave the node unchanged. Rules are not applied to their own results. The types must stay the same.
The rule is responsible for the bits. TVM calls this Legalize in Relay and, with a customised map, LegalizeOps
in Relax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Value, describe
from microfold.ir.op import REGISTRY, Op
from microfold.ir.rewrite import RewriteSite, Rule, forward_rewrite
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

Rules = Mapping[type[Op] | str, Rule[None]]


@function_pass(opt_level=0)
class Legalize(Struct, frozen=True):
    """Application of a map of rules.

    Attributes:
        rules: rule of each operator, by its class (base classes include subclasses) or its name in the text
            form.

    Raises:
        InputError: a name belongs to no operator, or a rule changes the types.
    """

    rules: Rules = field(default_factory=dict)

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        rules = {_op_type(op): _checked(rule, context) for op, rule in self.rules.items()}
        return forward_rewrite(graph, rules)


def _op_type(op: type[Op] | str) -> type[Op]:
    if isinstance(op, str) and op not in REGISTRY:
        raise InputError(f"unknown operator {op!r}; operators: {', '.join(sorted(REGISTRY))}")
    return REGISTRY[op] if isinstance(op, str) else op


def _checked(rule: Rule[None], context: PassContext) -> Rule[None]:
    """Wrap a rule: record its answers, and check the types of its results."""

    def legalize(site: RewriteSite[None]) -> Sequence[Value] | None:
        answer = rule(site)
        if answer is None:
            context.declined(site.node, "its rule returned None")
            return None
        results = tuple(answer) if isinstance(answer, Sequence) else (answer,)
        values = tuple(site.builder.value(result) for result in results)
        expected = tuple(value.type for value in site.node.outputs)
        given = tuple(value.type for value in values)
        if given != expected:
            raise InputError(
                f"a rule must keep the types; the rule for {describe(site.node)} returns "
                f"({', '.join(map(str, given))}) for ({', '.join(map(str, expected))})"
            )
        context.fired(site.node, "replaced by its rule")
        return values

    return legalize
