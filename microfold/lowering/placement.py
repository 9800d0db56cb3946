"""What the options ask of places: linker sections of layers, alignment of inputs and outputs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from microfold.errors import InputError
from microfold.options import Options
from microfold.program import Buffer, Layer, Program, constant_key


def check_placement(layers: Sequence[Layer], options: Options) -> None:
    """Raises `InputError` where a section is given for no layer, or two for what two layers share."""
    names = [layer.name for layer in layers]
    for unknown in [*options.data_sections, *options.code_sections]:
        if unknown not in names:
            raise InputError(
                f"a placement names a layer; there is no {unknown!r}; layers are {', '.join(names)}"
            )
    placed = [layer for layer in layers if layer.name in options.data_sections]
    constants = (
        (layer, constant_key(c.array, c.record)) for layer in placed for c in layer.call.constants.values()
    )
    _check_shared("a constant", constants, options.data_sections)
    placed = [layer for layer in layers if layer.name in options.code_sections]
    _check_shared("their kernel", ((layer, layer.call.function) for layer in placed), options.code_sections)


def check_alignment(program: Program) -> None:
    """Raises `InputError` where inputs or outputs in the arena start at no multiple of the alignment.

    A part of another value may not, nor rows behind those of padding.
    """
    alignment = program.options.align
    wrong = misaligned(program.inputs, program.outputs, alignment)
    if wrong:
        raise InputError(
            f"with align={alignment}, inputs and outputs must start at multiples of {alignment} bytes; "
            f"{', '.join(wrong)}: leave align away, or choose another io"
        )


def misaligned(inputs: Sequence[Buffer], outputs: Sequence[Buffer], alignment: int) -> list[str]:
    """What starts in the arena at no multiple of the alignment."""
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
                f"layers that share {what} must be in one section; {other} is to be in {sections[other]}, "
                f"{layer.name} in {sections[layer.name]}: place both in one"
            )
