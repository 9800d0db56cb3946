"""Content-based keys of programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from microfold.ir.graph import Graph
from microfold.ir.text import to_text
from microfold.kernels.call import Constant
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.passes.kinds import Pass, Sequential
from microfold.program import Program
from microfold.support.digest import digest_of
from microfold.target import Target

# Options that no code depends on.
_WITHOUT_CODE = {"license": "MIT"}


def program_key(graph: Graph, target: Target, options: Options, context: PassContext) -> str:
    """Return a key of everything that determines a build's alternatives, except the model's name.

    The compiler and the version of microfold are not in the key, because they are part of a `Setting`.
    """
    passes: list[object] = [
        context.opt_level,
        context.numerics,
        {*context.disabled_pass},
        {*context.required_pass},
    ]
    if context.pipeline is not None:
        passes += [context.pipeline.name, *_order(context.pipeline)]
    chosen = replace(options, **_WITHOUT_CODE)
    return digest_of(
        "\n".join([to_text(replace(graph, name="graph")), *map(_text, (target, chosen, passes))])
    )


def _order(step: Pass) -> list[str]:
    """Return the names of the passes in a pipeline, in their order."""
    return (
        [name for each in step.passes for name in _order(each)]
        if isinstance(step, Sequential)
        else [step.name]
    )


def code_digest(program: Program) -> str:
    """Return a key of a program's code and of the locations of its data, which determine its run time.

    The contents of constants are not included, because they are equal for one `program_key`.
    """
    words = [f"{program.arena.size} {program.parts}"]
    for layer in program.calls:
        call = layer.call
        numbers = {
            name: value.label if isinstance(value, Constant) else value
            for name, value in call.parameters.items()
        }
        places = [(buffer.region, buffer.offset) for buffer in (*layer.inputs, *layer.outputs)]
        function = call.function
        words.append(
            f"{function.name} {function.spec} {function.only_layer} {numbers} {call.scratch} {places}"
        )
    return digest_of("\n".join(words))


def _text(value: object) -> str:
    """Return a value as text that is equal in every process, with the members of sets in sorted order."""
    if isinstance(value, Struct):
        return _text(asdict(value))
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return f"{{{', '.join(sorted(f'{_text(key)}: {_text(found)}' for key, found in pairs))}}}"
    if isinstance(value, Set):
        return f"{{{', '.join(sorted(map(_text, cast('Set[Any]', value))))}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_text, cast('Sequence[Any]', value)))}]"
    return repr(value)
