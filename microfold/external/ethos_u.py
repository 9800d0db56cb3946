"""Ethos-U custom operators as calls of the NPU's driver.

The interface between the driver and a Vela-compiled model is that of TensorFlow Lite for Microcontrollers
(https://github.com/tensorflow/tflite-micro/blob/main/tensorflow/lite/micro/kernels/ethos_u/ethosu.cc). Base
address 0 is the address of the weights, 1 of the arena, 2 of the fast scratch; the addresses of inputs and
outputs follow. The maximum is 8 base addresses. The command stream accesses inputs and outputs through base
address 1, at the offsets of Vela's memory plan.

The driver requires command stream and base addresses at multiples of 16
(https://gitlab.arm.com/artificial-intelligence/ethos-u/ethos-u-core-driver, ``ethosu_driver.h``). It cleans
and invalidates data caches from these addresses on. The arena therefore consists of whole cache lines, which
contain no other data.
"""

from __future__ import annotations

from collections.abc import Sequence

from microfold.external.external import External, ExternalRegion
from microfold.ir.pattern import is_op
from microfold.ir.pattern_table import PatternEntry
from microfold.kernels.call import CFunction, Constant, KernelCall, Library, Parameter
from microfold.kernels.fields import declare
from microfold.ops.external.ethos_u import EthosU

ALIGNMENT = 16
CACHE_LINE = 32
# Alignment of scratch memory in the planner, in bytes. The generated call aligns the address further.
_PLANNED = 8

DRIVER = Library(
    "the Ethos-U core driver 0.16 or later",
    ("ethosu_driver.h",),
    stand_in=(
        ("ethosu_driver.h", "external/ethos_u/stand_in.h.j2"),
        ("ethosu_stand_in.c", "external/ethos_u/stand_in.c.j2"),
    ),
)
# In addition, each input and output has an offset and a size.
_FIELDS = declare("commands", "weights", "commands_size", "weights_size", "arena_size", "fast_size")
_CALLS = ("ethosu_reserve_driver", "ethosu_invoke_v3", "ethosu_release_driver")


class EthosUDriver(External):
    """Code generator that calls the driver once for each command stream."""

    name = "ethos-u"
    automatic = True

    @property
    def patterns(self) -> Sequence[PatternEntry]:
        return [PatternEntry("command_stream", is_op(EthosU))]

    def lower(self, region: ExternalRegion) -> KernelCall:
        layer = region.layer()
        node, op = layer.node, layer.node.op
        assert isinstance(op, EthosU)
        commands, weights = layer.array(0), layer.array(1)
        assert commands is not None
        parameters: dict[str, Parameter] = {"commands": Constant("commands", commands, alignment=ALIGNMENT)}
        sizes = {"commands_size": commands.size}
        if weights is not None:
            parameters["weights"] = Constant("weights", weights, alignment=ALIGNMENT)
            sizes["weights_size"] = weights.size
        parameters |= sizes | {"arena_size": op.arena, "fast_size": op.fast}
        inputs = [value for value in node.inputs[2:] if value is not None]
        ports = (("input", inputs, op.input_offsets), ("output", node.outputs, op.output_offsets))
        places: dict[str, Parameter] = {}
        for kind, values, offsets in ports:
            for index, (value, offset) in enumerate(zip(values, offsets, strict=True)):
                places |= {f"{kind}_{index}_offset": offset, f"{kind}_{index}_size": value.type.nbytes}
        # An input that is read twice has one pointer.
        pointers = [region.body.inputs.index(value) for value in inputs]
        spec = (
            ("pointers", ",".join(map(str, pointers))),
            ("outputs", len(node.outputs)),
            ("weighted", weights is not None),
            ("cache_line", CACHE_LINE),
        )
        function = CFunction(
            "external/ethos_u/invoke.c.j2",
            "u8_ethos_u__driver",
            spec,
            (*_FIELDS, *declare(*places)),
            DRIVER,
            _CALLS,
        )
        lines = -(-max(op.arena, op.fast) // CACHE_LINE) * CACHE_LINE
        return KernelCall(function, parameters | places, lines + CACHE_LINE - _PLANNED)
