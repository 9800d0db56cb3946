"""Simulation of a compiled program on the board of its target."""

from __future__ import annotations

from microfold.codegen.emit import emit_build, stand_ins
from microfold.codegen.literals import C_TYPES
from microfold.errors import TargetError
from microfold.ir.node import Value
from microfold.program import Buffer, Layer, Program
from microfold.simulate import boards
from microfold.simulate.run import Simulator
from microfold.simulate.sources import LayerPart, LayerSpec, LayerTensor, ModelSources, TensorSpec


def model_sources(program: Program) -> ModelSources:
    """Return the program's C files and the data that the simulation needs."""
    program = program.without_trace
    build = emit_build(program)
    return ModelSources(
        name=program.name,
        files=build.files,
        blob=build.blob,
        inputs=tuple(_tensor(i, b) for i, b in enumerate(program.inputs)),
        outputs=tuple(_tensor(i, b) for i, b in enumerate(program.outputs)),
        layers=tuple(_layer_spec(layer.index, layer) for layer in program.layers),
        inner=tuple(_layer_spec(index, layer) for index, layer in enumerate(program.inner_layers)),
        parts=_parts(program),
        io=program.options.io,
        pushed=program.pushed_input,
        arenas=(program.parts or (program.arena.size,)) if program.options.split else (),
        stand_ins=stand_ins(program),
        compile_flags=program.options.external_compile_flags,
        link_flags=program.options.external_flags,
    )


def _parts(program: Program) -> tuple[LayerPart, ...]:
    if program.stream is None:
        return ()
    return tuple(
        LayerPart(each, tuple(_layer_tensor(b) for b in program.layers[each].outputs))
        if isinstance(each, int)
        else LayerPart(each.layer, (_row(each.value, each.size, each.address),))
        for each in program.stream.computed
    )


def _row(value: Value, size: int, address: int) -> LayerTensor:
    dtype = value.type.dtype.numpy
    return LayerTensor(size // dtype.itemsize, dtype, address)


def simulator(program: Program, optimize: str | None = None) -> Simulator:
    """Return a simulator of the program's target, a context manager.

    Args:
        optimize: optimisation flag of the compiler; default: the flag of the program's options.

    Raises:
        TargetError: the target has no simulated board.
    """
    target = program.target
    if not target.board:
        raise TargetError(
            f"a simulated run requires a target with a board; {target.name} has none: "
            "choose one that `microfold targets` lists with a board"
        )
    return Simulator(
        model_sources(program),
        boards.find(target.board),
        target.cpu_flags,
        optimize=optimize or program.options.compiler_flag,
        compiler=target.compiler,
    )


def _tensor(index: int, buffer: Buffer) -> TensorSpec:
    dtype = buffer.type.dtype
    return TensorSpec(index, C_TYPES[dtype], buffer.type.size, dtype.numpy, buffer.offset)


def _layer_spec(index: int, layer: Layer) -> LayerSpec:
    return LayerSpec(index, layer.name, tuple(_layer_tensor(b) for b in layer.outputs))


def _layer_tensor(buffer: Buffer) -> LayerTensor:
    region = "caller" if buffer.region == "output" else buffer.region
    return LayerTensor(buffer.type.size, buffer.type.dtype.numpy, buffer.offset, region)
