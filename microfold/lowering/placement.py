"""Checks of the options about placement: linker sections of layers, alignment of inputs and outputs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from microfold.errors import InputError
from microfold.options import Options
from microfold.program import Buffer, Layer, Program, constant_key


def check_placement(layers: Sequence[Layer], options: Options) -> None:
    """Raise InputError if a section names an unknown layer, or if layers in two sections share something."""
    names = [layer.name for layer in layers]
    for unknown in [*options.data_sections, *options.code_sections]:
        if unknown not in names:
            raise InputError(f"a placement names an unknown layer {unknown!r}; layers: {', '.join(names)}")
    placed = [layer for layer in layers if layer.name in options.data_sections]
    constants = (
        (layer, constant_key(c.array, c.record)) for layer in placed for c in layer.call.constants.values()
    )
    _check_shared("a constant", constants, options.data_sections)
    placed = [layer for layer in layers if layer.name in options.code_sections]
    _check_shared("their kernel", ((layer, layer.call.function) for layer in placed), options.code_sections)


def check_alignment(program: Program) -> None:
    """Raise InputError if inputs or outputs in the arena are not aligned.

    Parts of other values may be misaligned, and so may rows after rows of padding.
    """
    alignment = program.options.align
    wrong = misaligned(program.inputs, program.outputs, alignment)
    if wrong:
        raise InputError(
            f"with align={alignment}, inputs and outputs must start at multiples of {alignment} bytes; "
            f"{', '.join(wrong)}: remove align, or choose another io"
        )


def misaligned(inputs: Sequence[Buffer], outputs: Sequence[Buffer], alignment: int) -> list[str]:
    """Return descriptions of the inputs and outputs in the arena that are not aligned."""
    return [
        f"{kind} {index} ({buffer.value.name!r}) starts at {buffer.offset}"
        for kind, buffers in (("input", inputs), ("output", outputs))
        for index, buffer in enumerate(buffers)
        if buffer.region == "arena" and buffer.offset % alignment
    ]


def _check_shared(what: str, users: Iterable[tuple[Layer, Hashable]], sections: Mapping[str, str]) -> None:
    first: dict[Hashable, str] = {}
    for layer, shared in users:
        other = first.setdefault(shared, layer.name)
        if sections[other] != sections[layer.name]:
            raise InputError(
                f"layers that share {what} must be in one section; {other} is in {sections[other]}, "
                f"{layer.name} in {sections[layer.name]}: place both in the same section"
            )
