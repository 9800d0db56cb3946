"""Program to C text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from microfold.codegen.environment import environment
from microfold.codegen.literals import C_TYPES, c_type, literal
from microfold.ir.graph import Value
from microfold.ir.types import Array, TensorType
from microfold.kernels.kernel import Constant, Function
from microfold.plan.arena import align
from microfold.program import Buffer, Layer, Program

# In this order: later vocabularies may use earlier helpers.
HELPER_FILES = ("simd/c.j2", "simd/dsp.j2", "simd/mve.j2")


def emit(program: Program) -> dict[str, str]:
    """The C files of a program: file name to text. Equal programs give equal bytes."""
    model = _Model(program)
    name = program.name
    files = {
        f"{name}.h": _render("model/header.h.j2", model),
        f"{name}.c": _render("model/source.c.j2", model),
    }
    if not program.options.single_file:
        files[f"{name}_weights.h"] = _render("model/weights.h.j2", model)
        files[f"{name}_weights.c"] = _render("model/weights.c.j2", model)
    return files


def _render(template: str, model: _Model) -> str:
    text = environment().get_template(template).render(model=model)
    return re.sub(r"\n{3,}", "\n\n", text.rstrip() + "\n")


@dataclass(frozen=True)
class _Array:
    """A constant array of the generated C."""

    name: str
    type: str
    array: Array
    record: bool
    comment: str

    @property
    def length(self) -> int:
        """Elements, or records."""
        return self.array.shape[0] if self.record else self.array.size


@dataclass(frozen=True)
class _Field:
    name: str
    text: str


@dataclass(frozen=True)
class _Layer:
    """What the template prints for one layer."""

    index: int
    name: str
    function: str
    fields: tuple[_Field, ...]
    arguments: tuple[str, ...]
    comment: tuple[str, ...]


@dataclass(frozen=True)
class _Port:
    """An input or output as the header describes it."""

    direction: str
    index: int
    label: str
    c_type: str
    type: TensorType
    region: str
    offset: int

    @property
    def macro(self) -> str:
        return f"{self.direction.upper()}_{self.index}"

    @property
    def variable(self) -> str:
        return f"{self.direction}_{self.index}"

    @property
    def shape(self) -> str:
        return "{" + ", ".join(map(str, self.type.shape or (1,))) + "}"

    @property
    def scale(self) -> str:
        assert self.type.quant is not None
        return literal(self.type.quant.scale)

    @property
    def zero_point(self) -> str:
        assert self.type.quant is not None
        return literal(self.type.quant.zero_point)


class _Model:
    """Everything that the model templates print, worked out beforehand."""

    def __init__(self, program: Program):
        self.program = program
        self.name = program.name
        self.macro = program.name.upper()
        self.options = program.options
        self.target = program.target
        self.arena_size = program.arena.size
        self.state_size = program.state_size
        self.caller_io = program.options.io == "caller"
        self.inputs = [_port("input", i, b) for i, b in enumerate(program.inputs)]
        self.outputs = [_port("output", i, b) for i, b in enumerate(program.outputs)]
        self._function_names = _function_names(layer.call.function for layer in program.layers)
        self._arrays: dict[Constant, _Array] = {}
        self._operands: dict[Value, Constant] = {}
        self.layers = [self._layer(layer) for layer in program.layers]
        self.state = [self._slot(i) for i in range(len(program.state))]
        self.functions = self._render_functions()
        records = sorted({a.type for a in self.arrays if a.record})
        self.records = _helpers(records)
        helpers = _helpers(self.functions)
        # With weights in a file of their own, its header defines the record types.
        self.helpers = helpers if self.options.single_file else [h for h in helpers if h not in self.records]
        calls = ["memcpy()"] if self.state else []
        fields = [field.text for layer in self.layers for field in layer.fields]
        self.headers = _headers("\n".join([*helpers, *self.functions, *fields, *calls]))
        self.uses_arena = any("arena" in a for layer in self.layers for a in layer.arguments)

    @property
    def context_size(self) -> int:
        """sizeof the context struct: both parts are unions with a uint64_t."""
        return align(max(self.arena_size, 1)) + align(self.state_size)

    @property
    def section(self) -> str:
        name = self.options.weights_section
        return f'__attribute__((section("{name}"))) ' if name else ""

    @property
    def weight_headers(self) -> list[str]:
        finite = all(bool(np.isfinite(a.array).all()) for a in self.arrays if a.array.dtype.kind == "f")
        return [] if finite else ["math.h"]

    @property
    def arrays(self) -> list[_Array]:
        return list(self._arrays.values())

    def array(self, constant: Constant, owner: str, comment: str) -> str:
        if constant not in self._arrays:
            name = f"{self.name}_{owner}_{constant.label}"
            element = constant.record or c_type(constant.array)
            self._arrays[constant] = _Array(name, element, constant.array, bool(constant.record), comment)
        return self._arrays[constant].name

    def _layer(self, layer: Layer) -> _Layer:
        fields: list[_Field] = []
        for field, value in layer.call.parameters.items():
            if isinstance(value, Constant):
                text = self.array(value, layer.name, layer.label)
            else:
                text = literal(value)
            fields.append(_Field(field, text))
        arguments = [f"&{layer.name}_layer"] if fields else []
        arguments += [self._address(b, const=True) for b in layer.inputs]
        arguments += [self._address(b, const=False) for b in layer.outputs]
        if layer.scratch is not None:
            arguments.append(f"(void *)(arena + {layer.scratch})")
        return _Layer(
            layer.index,
            layer.name,
            self._function_names[layer.call.function],
            tuple(fields),
            tuple(arguments),
            _comment(layer),
        )

    def _address(self, buffer: Buffer, *, const: bool) -> str:
        qualifier = "const void *" if const else "void *"
        if buffer.region == "arena":
            return f"({qualifier})(arena + {buffer.offset})"
        if buffer.region == "state":
            return f"({qualifier})(context->state.bytes + {buffer.offset})"
        if buffer.region == "constant":
            if buffer.value not in self._operands:
                array = self.program.graph.constants[buffer.value]
                self._operands[buffer.value] = Constant(f"operand_{len(self._operands)}", array)
            return self.array(self._operands[buffer.value], "constant", buffer.value.name)
        return f"{buffer.region}_{buffer.offset}"

    def _slot(self, index: int) -> dict[str, str | int]:
        slot = self.program.state[index]
        state = self.program.graph.state[index]
        initial = Constant(f"state_{index}", state.initial)
        return {
            "label": slot.buffer.value.name,
            "offset": slot.buffer.offset,
            "size": slot.buffer.type.nbytes,
            "initial": self.array(initial, "initial", slot.buffer.value.name),
            "next": self._address(slot.next, const=True) if slot.next is not None else "",
        }

    def _render_functions(self) -> list[str]:
        return [
            environment().get_template(function.template).render(name=name, **dict(function.spec)).strip()
            for function, name in self._function_names.items()
        ]


def _port(direction: str, index: int, buffer: Buffer) -> _Port:
    return _Port(
        direction,
        index,
        buffer.value.name,
        C_TYPES[buffer.type.dtype],
        buffer.type,
        buffer.region,
        buffer.offset,
    )


def _function_names(functions: Iterable[Function]) -> dict[Function, str]:
    """One C name per distinct function: the kernel's, numbered where specifications differ."""
    distinct = list(dict.fromkeys(functions))
    by_kernel: dict[str, list[Function]] = {}
    for function in distinct:
        by_kernel.setdefault(function.name, []).append(function)
    return {
        function: function.name
        if len(by_kernel[function.name]) == 1
        else f"{function.name}_{by_kernel[function.name].index(function) + 1}"
        for function in distinct
    }


def _comment(layer: Layer) -> tuple[str, ...]:
    """The lines that introduce a layer: its name, then what it computes and with which kernel."""
    reads = [v.type for i, v in enumerate(layer.node.inputs) if v is not None and i < 2]
    steps = "".join(f" + {step.op.name}" for step in layer.node.epilogue)
    operands = ", ".join(str(t) for t in reads)
    work = f", {layer.macs} MACs" if layer.macs else ""
    return (
        f'{layer.index}: {layer.node.op.name}{steps} "{layer.label}"',
        f"{operands} -> {layer.node.outputs[0].type}; {layer.kernel.name}{work}",
    )


@cache
def _vocabulary() -> dict[str, str]:
    """All helpers by name, in the order of the files."""
    found: dict[str, str] = {}
    for path in HELPER_FILES:
        template = environment().get_template(path)
        module = template.module
        source = template.environment.loader.get_source(template.environment, path)[0]  # type: ignore[union-attr]
        for name in re.findall(r"{% *macro +(\w+)\(", source):
            found[name] = str(getattr(module, name)()).strip()
    return found


def _helpers(functions: Iterable[str]) -> list[str]:
    """The helpers that the functions use, directly or through other helpers, in definition order."""
    vocabulary = _vocabulary()
    used: set[str] = set()
    pending = list(functions)
    while pending:
        text = pending.pop()
        for name in set(re.findall(r"\bmf_\w+", text)) & vocabulary.keys():
            if name not in used:
                used.add(name)
                pending.append(vocabulary[name])
    return [text for name, text in vocabulary.items() if name in used]


def _headers(code: str) -> list[str]:
    """Standard headers that the code needs."""
    marks = {
        "arm_acle.h": r"\b__(smlad|ssat|sxtb16|smlabb|sadd16|qadd|usat|clz|ror|smlabt|smlatb|smlatt|smuad|ssub8|sel)\b|int16x2_t",
        "arm_mve.h": r"\bint(8x16|16x8|32x4)_t\b|\bfloat32x4_t\b|\bmve_pred16_t\b",
        "math.h": r"\b(INFINITY|NAN|expf|tanhf|sqrtf|fabsf|floorf|roundf|logf|powf|sinf|cosf|rintf)\b",
        "stddef.h": r"\bNULL\b",
        "string.h": r"\bmem(cpy|set|move)\b",
    }
    return [header for header, pattern in marks.items() if re.search(pattern, code)]
