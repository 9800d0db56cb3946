"""Operator context: the interface between an importer function and the operator that it imports."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tflite

from microfold.errors import TypeRuleError
from microfold.frontend.complex_numbers import COMPLEX_NAME, with_parts
from microfold.frontend.float_limits import FLT_MAX, bounds_results, divides_ordinarily, is_ordinary
from microfold.frontend.half import WIDENED
from microfold.frontend.legacy import MOVING, SHIFTED, is_legacy, signed, signed_array
from microfold.frontend.raw import OperatorOptions, RawOperator, RawTensor
from microfold.frontend.reader import type_name
from microfold.frontend.schema import (
    NO_OPTIONS,
    activation_name,
    option_faults,
    options_code,
    options_name,
)
from microfold.frontend.scope import ImportScope, Unsupported, describe
from microfold.frontend.variables import Variable
from microfold.frontend.zero_products import zero_product
from microfold.ir.limits import shape_fault
from microfold.ir.node import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.bitcast import Bitcast
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.reshape import Reshape

_STATIC = "export the model with static shapes and constant operator attributes"

MAX_LIST = 4096  # elements of an attribute list or of a shape computation

CLIPS = {
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}


class OperatorContext:
    """Operator during its import.

    Args:
        raw: the operator in the file.
        scope: values of the operator's subgraph. Importers add results with `finish`.
    """

    def __init__(self, raw: RawOperator, scope: ImportScope):
        self.raw = raw
        self.scope = scope
        self._read: set[int] = set()
        computed = any(scope.values.get(index) in scope.signed for index in raw.inputs)
        self._is_shifted = raw.name in SHIFTED or (raw.name in MOVING and computed)

    def options(self, kind: str) -> OperatorOptions | None:
        """Return the builtin options of this class; None if the file has none.

        Raises:
            Unsupported: the file has options of another class, or a field has a value unknown to the format.
        """
        code = self.raw.options_code()
        options = self.raw.options(kind)
        if options is None and code == NO_OPTIONS:
            return None
        if options is None or code != options_code(kind):
            found = "missing" if options is None else options_name(code)
            raise Unsupported(f"its options must be {kind}; they are {found}", "export the model again")
        faults = option_faults(kind, options)
        if faults:
            raise Unsupported("; ".join(faults), "export the model again")
        return options

    def required_options(self, kind: str) -> OperatorOptions:
        """Return the builtin options of this class.

        Raises:
            Unsupported: the file has none.
        """
        options = self.options(kind)
        if options is None:
            raise Unsupported(f"its {kind} are missing", "export the model again")
        return options

    def require_count(self, field: str, stated: int, found: int, what: str) -> None:
        """Reject a count in the options that differs from the number of operands.

        Args:
            field: name of the option in the format.
            stated: count in the options.
            found: number of operands.
            what: noun for the operands, for the message.

        Raises:
            Unsupported: the numbers differ.
        """
        if stated != found:
            raise Unsupported(f"{field} must be the number of its {what}, {found}; it is {stated}")

    def require_type(self, field: str, stated: int) -> None:
        """Reject an element type in the options that differs from the type of output 0.

        Args:
            field: name of the option in the format.
            stated: type in the options, a member of the format's `TensorType`.

        Raises:
            Unsupported: the types differ.
        """
        declared, named = self.scope.tensors[self.raw.outputs[0]].type_name, type_name(stated)
        if named != declared:
            raise Unsupported(f"{field} must be the type of its output, {declared}; it is {named}")

    @property
    def input_count(self) -> int:
        return len(self.raw.inputs)

    def optional(self, index: int) -> Value | None:
        """Return input `index`, or None if it is absent."""
        if index >= len(self.raw.inputs) or self.raw.inputs[index] < 0:
            return None
        self._read.add(index)
        tensor = self.raw.inputs[index]
        if tensor not in self.scope.values:
            raise Unsupported(
                f"input {index} ({self.scope.tensors[tensor].name!r}) is a variable, not a value"
            )
        value = self.scope.values[tensor]
        if self._is_widened(value.type):
            return self.emit(Cast(DType.FLOAT32), value, names=[f"{value.name}_float"])[0]
        return self._signed(value) if self._is_shifted and is_legacy(value.type) else value

    def _is_widened(self, element: ElementType | TensorType) -> bool:
        """Return whether the type is float16 and the operator computes in float32 instead."""
        return self.raw.name in WIDENED and element.dtype is DType.FLOAT16

    def _signed(self, value: Value) -> Value:
        if value not in self.scope.signed:
            name, element = f"{value.name}_signed", signed(value.type.element)
            array = self.scope.constants.get(value)
            if array is not None:
                self.scope.signed[value] = self.add_constant(signed_array(array), name, element)
            else:
                (self.scope.signed[value],) = self.emit(Requantize(element), value, names=[name])
        return self.scope.signed[value]

    def resource(self, index: int) -> int:
        """Return the tensor index of input `index`, which must be a variable's handle."""
        if index >= len(self.raw.inputs):
            raise Unsupported(f"input {index} is missing")
        self._read.add(index)
        return self.raw.inputs[index]

    def memory(self, index: int) -> RawTensor:
        """Return the tensor of input `index`, whose content the operator does not read."""
        if index >= len(self.raw.inputs) or self.raw.inputs[index] < 0:
            raise Unsupported(f"input {index} is missing")
        self._read.add(index)
        return self.scope.tensors[self.raw.inputs[index]]

    def block_scales(self, index: int) -> tuple[Array, int] | None:
        """Return the scales of the blocks of input `index`, and the length of a block, in elements.

        The result is None if the input is not quantised in blocks.

        Raises:
            Unsupported: the scales are not constant, or do not match the shape of the input.
        """
        tensor = self.scope.tensors[self.raw.inputs[index]]
        if tensor.blocks is None:
            return None
        where, length = tensor.blocks
        scales = self.scope.tensors[where].data if 0 <= where < len(self.scope.tensors) else None
        expected = (*tensor.shape[:-1], tensor.shape[-1] // length) if length > 0 and tensor.shape else ()
        if (
            scales is None
            or scales.dtype.kind != "f"
            or scales.shape != expected
            or tensor.shape[-1] % length
        ):
            raise Unsupported(
                f"{tensor.name!r}: its scales must be real constants, one for each {length} elements; "
                f"they are {'computed' if scales is None else f'{scales.dtype}{list(scales.shape)}'} for "
                f"{list(tensor.shape)}"
            )
        return scales.astype(np.float32), length

    def intermediate(self, index: int) -> ElementType:
        """Return the element type of intermediate tensor `index` of the operator.

        Raises:
            Unsupported: the file does not specify one scale for it.
        """
        tensor = self.raw.intermediates[index] if index < len(self.raw.intermediates) else -1
        element = self.scope.declared_element(tensor) if tensor >= 0 else None
        if element is None or element.quant is None or element.quant.axis is not None:
            raise Unsupported(f"intermediate tensor {index} must have one scale; it has none")
        return element

    def intermediate_scale(self, index: int) -> float:
        """Return the scale of intermediate tensor `index`; for errors see `intermediate`."""
        quant = self.intermediate(index).quant
        assert quant is not None
        return quant.scale

    def check_complete(self) -> None:
        """Reject inputs that the importer did not read.

        Raises:
            Unsupported: the operator has unread inputs.
        """
        ignored = [i for i, tensor in enumerate(self.raw.inputs) if tensor >= 0 and i not in self._read]
        if ignored:
            raise Unsupported(f"it has {len(self.raw.inputs)} inputs; {ignored} have no meaning")

    def input(self, index: int) -> Value:
        """Return input `index`, which must not be absent."""
        value = self.optional(index)
        if value is None:
            raise Unsupported(f"input {index} is missing")
        return value

    def inputs(self) -> list[Value]:
        """Return all inputs, at least one."""
        if not self.raw.inputs:
            raise Unsupported("it has no inputs")
        return [self.input(i) for i in range(self.input_count)]

    def raw_type(self, index: int) -> DType | None:
        """Return the element type of input `index` in the file."""
        return self.scope.tensors[self.raw.inputs[index]].dtype

    def known(self, index: int) -> Array | None:
        """Return the elements of input `index` if it is constant, else None."""
        return self.scope.constants.get(self.input(index))

    def constant(self, index: int, what: str) -> Array:
        """Return the elements of input `index`, which must be constant."""
        array = self.known(index)
        if array is None:
            raise Unsupported(
                f"its {what} must be constant; it is computed by the model",
                _STATIC,
            )
        return array

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """Return the elements of input `index`, which must be constant integers of any rank."""
        array = self.constant(index, what)
        if array.dtype.kind not in "iu" or array.size > MAX_LIST:
            raise Unsupported(
                f"its {what} must be at most {MAX_LIST} integers; it is {array.dtype}{list(array.shape)}"
            )
        return tuple(int(n) for n in array.reshape(-1))

    def shape(self, index: int, what: str) -> tuple[int, ...]:
        """Return the elements of input `index`, which must be a constant and valid shape."""
        shape = self.integers(index, what)
        fault = shape_fault(shape)
        if fault:
            raise Unsupported(f"its {what}: {fault}")
        return shape

    def result_shape(self, index: int, what: str) -> tuple[int, ...]:
        """Return the output shape in input `index`; if that is not constant, see `static_shape`."""
        if self.known(index) is not None:
            return self.shape(index, what)
        return self.static_shape(what, self.input(index).type.size)

    def static_shape(
        self, what: str, rank: int, position: int = 0, *, hint: str = _STATIC
    ) -> tuple[int, ...]:
        """Return the shape of output `position` in the file, for operators with a computed attribute.

        Args:
            what: name of the computed attribute.
            rank: number of axes that the shape must have.
            hint: remedy if the file leaves the shape open.

        Raises:
            Unsupported: the file leaves the shape open, or it has another rank.
        """
        shape = self.scope.tensors[self.raw.outputs[position]].signature
        if len(shape) != rank or min(shape, default=1) < 1:
            raise Unsupported(
                f"its {what} is computed by the model, so the shape of its result must be in the file, "
                f"with {rank} axes; it is {list(shape)}",
                hint,
            )
        return shape

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis as an index from the front. Negative axes count from the back."""
        if not -rank <= axis < rank:
            raise Unsupported(f"axis {axis} must be in [{-rank}, {rank})")
        return axis % rank

    def element(self, index: int = 0) -> ElementType:
        """Return the element type of output `index` in the file; int8 for legacy uint8 computed as int8."""
        element = self.scope.declared_element(self.raw.outputs[index])
        if self._is_widened(element):
            return ElementType(DType.FLOAT32)
        return signed(element) if self._is_shifted and is_legacy(element) else element

    def declared_type(self, index: int = 0) -> TensorType:
        """Return the type of output `index` in the file."""
        return self.scope.declared_type(self.raw.outputs[index])

    def declared_shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of output `index` in the file. It can be outdated: use it as a hint only."""
        return self.scope.tensors[self.raw.outputs[index]].shape

    def _result_element(self, index: int) -> ElementType:
        """Return the element type of an output. Unlike the result of `element`, it may have the scale 0."""
        raw = self.scope.tensors[self.raw.outputs[index]]
        if raw.dtype is None or not raw.quant_fault or raw.quant is None:
            return self.element(index)
        found = ElementType(raw.dtype, raw.quant)
        return signed(found) if self._is_shifted and is_legacy(found) else found

    def require_same_quantization(self, *values: Value) -> None:
        """Require equal quantisation of inputs and outputs, for operators that move integers unchanged.

        Outputs of another element type, e.g. indices, are ignored.

        Raises:
            Unsupported: the quantisation of an output is different or invalid.
        """
        for value in values:
            given = value.type.quant
            if value.type.dtype.is_float or given is None:
                continue
            for index in range(len(self.raw.outputs)):
                found = self._other_quantization(value, index)
                if found is not None:
                    raise _quantized_otherwise(given, found)

    def _other_quantization(self, value: Value, index: int) -> Quant | None:
        """Return the quantisation of an output if it differs from that of a value of the same type.

        Raises:
            Unsupported: the scale in the file is invalid.
        """
        given, out = value.type.quant, self._result_element(index)
        if given is None or out.dtype is not value.type.dtype or out.quant is None:
            return None
        if (given.scales, given.zero_points) == (out.quant.scales, out.quant.zero_points):
            return None
        return self.element(index).quant  # raises if the scale is 0

    def with_declared_scale(self, value: Value, index: int = 0) -> Value:
        """Return the integers of a value with the scale that the file has for an output.

        It is for operators that copy bytes in the reference, regardless of the scales of their operands.

        Raises:
            Unsupported: the scale in the file is invalid, or a value has one scale per channel.
        """
        given = value.type.quant
        found = self._other_quantization(value, index) if given is not None else None
        if given is None or found is None:
            return value
        if given.axis is not None or found.axis is not None or value.type.dtype is DType.INT4:
            raise _quantized_otherwise(given, found)
        element = ElementType(value.type.dtype, found)
        return self.emit(Bitcast(element), value, names=[f"{value.name}_bytes"])[0]

    def name(self, index: int = 0) -> str:
        """Return the name of the value for output `index`."""
        tensor = self.scope.tensors[self.raw.outputs[index]]
        shifted = self._is_shifted and tensor.dtype is DType.UINT8 and tensor.quant is not None
        if self.raw.name in WIDENED and tensor.dtype is DType.FLOAT16:
            return f"{tensor.name}_float"
        return f"{tensor.name}_signed" if shifted else tensor.name

    def add_constant(self, array: Array, name: str, element: ElementType | None = None) -> Value:
        """Return a new constant. Its default element type is that of the array."""
        self.scope.allowance.take(array.nbytes)
        element = element or ElementType(DType(array.dtype.name))
        value = Value(name, TensorType(element.dtype, array.shape, element.quant))
        self.scope.constants[value] = array
        return value

    def emit(self, op: Op, *inputs: Value | None, names: Sequence[str] | None = None) -> tuple[Value, ...]:
        """Append a node, whose output types follow from the type rule, and return its outputs.

        Small integer results of constants are computed immediately, because shapes depend on them.
        """
        if any(value in self.scope.complex for value in inputs if value is not None):
            return self._emit_parts(op, inputs, names)
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        names = names if names is not None else [self.name()]
        try:
            node = make_node(op, inputs, names)
        except TypeRuleError:
            zeros = zero_product(op, inputs, self.scope.constants)
            if zeros is None or zeros.quant is None:
                raise
            zero = np.array(zeros.quant.zero_point, zeros.dtype.numpy)
            given = self.add_constant(zero, f"{names[0]}_zero", zeros.element)
            node = make_node(BroadcastTo(zeros.shape), [given], names)
        if any(operand in self.scope.large for operand in node.operands) and not bounds_results(op):
            self.scope.large.update(node.outputs)
        for value in node.outputs:
            fault = "it has no elements" if value.type.size == 0 else shape_fault(value.type.shape)
            if fault:
                raise Unsupported(f"its result {value.type}: {fault}")
        if self._is_shape_arithmetic(node):
            tensors = {v: Tensor(v.type, self.scope.constants[v]) for v in node.operands}
            for value, result in zip(node.outputs, node.evaluate(tensors), strict=True):
                self.scope.constants[value] = result.data
        else:
            self.scope.nodes.append(node)
        return node.outputs

    def _emit_parts(
        self, op: Op, inputs: Sequence[Value | None], names: Sequence[str] | None
    ) -> tuple[Value, ...]:
        """Append the operator on parts that is equivalent to `op` on complex numbers."""
        lifted, parts = with_parts(op), [self.scope.complex.get(x) if x is not None else None for x in inputs]
        if isinstance(op, Select) and inputs[0] is not None:
            condition = inputs[0]
            column = Reshape((*condition.type.shape, 1))
            (parts[0],) = self.emit(column, condition, names=[f"{condition.name}_column"])
        if lifted is None or None in parts:
            raise Unsupported("with complex operands, it must only move elements, and have no real operands")
        return tuple(self.scope.complex_value(x) for x in self.emit(lifted, *parts, names=names))

    def parts(self, index: int) -> Value | None:
        """Return the parts of input `index`, float32 [..., 2]; None if it is not complex."""
        return self.scope.complex.get(self.input(index))

    def declares_complex(self) -> bool:
        """Return whether output 0 is complex in the file."""
        return self.scope.tensors[self.raw.outputs[0]].type_name == COMPLEX_NAME

    def _is_shape_arithmetic(self, node: Node) -> bool:
        constant = not node.op.bodies and all(v in self.scope.constants for v in node.operands)
        return constant and all(
            v.type.dtype in (DType.INT32, DType.INT64, DType.BOOL)
            and v.type.quant is None
            and v.type.size <= MAX_LIST
            for v in (*node.outputs, *node.operands)
        )

    def finish(self, *values: Value) -> None:
        """Set the values of the operator's outputs, in order.

        Raises:
            Unsupported: the number of outputs differs, or an output has no valid quantisation.
        """
        if len(values) != len(self.raw.outputs):
            raise Unsupported(f"it must have {len(values)} outputs; it has {len(self.raw.outputs)}")
        for tensor, value in zip(self.raw.outputs, values, strict=True):
            raw = self.scope.tensors[tensor]
            if raw.quant_fault and raw.quant is None and value.type.quant is not None:
                raise Unsupported(f"{raw.name!r}: {raw.quant_fault}", "quantise the model again")
            is_complex = value in self.scope.complex
            if (raw.type_name == COMPLEX_NAME) != is_complex:
                raise Unsupported(
                    f"its result is {'complex' if is_complex else 'real'}, and must be declared so; "
                    f"it is declared as {raw.type_name}"
                )
        for tensor, value in zip(self.raw.outputs, values, strict=True):
            self.scope.values[tensor] = self._as_declared(tensor, value)

    def _as_declared(self, tensor: int, value: Value) -> Value:
        """Return a result, converted to the type that the file has for it."""
        raw = self.scope.tensors[tensor]
        if self.raw.name in WIDENED and raw.dtype is DType.FLOAT16 and value.type.dtype is DType.FLOAT32:
            return self.emit(Cast(DType.FLOAT16), value, names=[raw.name])[0]
        return self._unsigned(tensor, value) if self._is_shifted else value

    def _unsigned(self, tensor: int, value: Value) -> Value:
        """Return a result, converted from int8 to legacy uint8 if the file has that for it."""
        raw = self.scope.tensors[tensor]
        if value.type.dtype is not DType.INT8 or raw.dtype is not DType.UINT8 or raw.quant is None:
            return value
        element = self.scope.declared_element(tensor)
        (result,) = self.emit(Requantize(element), value, names=[raw.name])
        self.scope.signed[result] = value
        return result

    def update_in_place(self, index: int, value: Value) -> None:
        """Assign `value` to input `index`, a variable tensor, for later operators and for the next run.

        Raises:
            Unsupported: the input is not a variable tensor.
        """
        variable = self.scope.variables.in_place.get(self.raw.inputs[index])
        if variable is None:
            raise Unsupported(f"input {index} must be a variable tensor: it is updated in place")
        self.scope.values[self.raw.inputs[index]] = value
        assert variable.current is not None
        variable.current = self.kept(value, variable.current)

    def state(self, name: str, type: TensorType) -> Variable:
        """Return a new state variable of the operator, with its zero point as the initial value.

        Raises:
            Unsupported: the shape is invalid.
        """
        fault = shape_fault(type.shape)
        if fault:
            raise Unsupported(f"its state {type}: {fault}")
        variables = self.scope.variables.in_place
        variable = variables[-1 - len(variables)] = Variable(name)
        variable.read(type)
        return variable

    def kept(self, value: Value, before: Value) -> Value:
        """Return `value` if this run changes the state, else the value `before`; see `ImportScope.runs`."""
        runs = self.scope.runs
        if runs is None:
            return value
        return self.emit(Select(), runs, value, before, names=[f"{value.name}_kept"])[0]

    def zero_point(self, value: Value) -> int:
        """Return the zero point of a value, or 0 if it is not quantised."""
        if value.type.quant is not None and value.type.quant.axis is not None:
            raise Unsupported(f"{value.name!r} has {len(value.type.quant.scales)} scales; it must have one")
        return value.type.quant.zero_point if value.type.quant is not None else 0

    def finish_activated(self, value: Value, activation: int) -> None:
        """Apply a fused activation function, and finish.

        The activation can be a separate operator, because clamping after saturation to the type's range
        equals clamping once.
        """
        if activation != tflite.ActivationFunctionType.NONE and activation not in CLIPS:
            raise Unsupported(f"its fused activation must be a ReLU; it is {activation_name(activation)}")
        low, high = CLIPS.get(activation, (-math.inf, math.inf))
        if value.type.dtype is DType.FLOAT32 and self._may_overflow():
            self.scope.large.add(value)
            low, high = max(low, -FLT_MAX), min(high, FLT_MAX)
        self.check_clip(low, high, value.type.element)
        if (low, high) == (-math.inf, math.inf):
            self.finish(value)
        else:
            self.finish(*self.emit(Clip(low, high), value))

    def check_clip(self, low: float, high: float, element: ElementType) -> None:
        """Require that the bounds of an activation fit int32 at the scale of its result.

        Raises:
            Unsupported: a finite bound does not fit. The references reject it, or convert it with undefined
                behaviour.
        """
        if element.quant is None:
            return
        for bound in filter(math.isfinite, (low, high)):
            if not abs(bound) / element.quant.scale < 1 << 31:
                raise Unsupported(
                    f"{bound:g} must be less than 2^31 steps of its result's scale, {element.quant.scale:g}",
                    "quantise the model again",
                )

    def _may_overflow(self) -> bool:
        """Return whether a float result may exceed FLT_MAX, judged by the constants and values read."""
        operands = [self.scope.values.get(tensor) for tensor in self.raw.inputs]
        arrays = [self.scope.constants.get(value) for value in operands if value is not None]
        if self.raw.name == "DIV" and len(arrays) == 2 and not divides_ordinarily(arrays.pop()):
            return True
        return not all(array is None or is_ordinary(array) for array in arrays) or any(
            value in self.scope.large for value in operands
        )


def _quantized_otherwise(given: Quant, found: Quant) -> Unsupported:
    return Unsupported(
        f"input and output must be quantised alike; they are {describe(given)} and {describe(found)}",
        "quantise the model with a converter that shares the scale across this operator",
    )
