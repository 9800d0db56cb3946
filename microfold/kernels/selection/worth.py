"""Whether a kernel that can compute a layer is worth what it gives up: one rule for each `Trade`.

A rule gives the reason why not, or None. `speed` takes every trade that saves time, `size` every one that
saves flash; the thresholds are those of `balanced`, but for those of layers that hardly gain anything, and of
the arena: they hold at every level.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from microfold.ir.types import DType
from microfold.kernels.kernel import Trade
from microfold.kernels.selection.packed_weights import four_bits, half_floats
from microfold.kernels.selection.policy import Case, far_from_largest
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D

# Outputs from which on long code pays.
FEWEST_OUTPUTS = 3000
# Bytes of scratch for inputs that are never too many; more are, unless input and output together are larger.
INPUT_SCRATCH = 8192
# The same for transformed tiles, and how many times as large as input and output they may be beyond that.
TILE_SCRATCH = 8192
TILE_SCRATCH_RATIO = 3
# Of all products, the part of layers with one window that is worth long code of their own, up to 2 KB; what
# it saves is weighed against that once more, see `flash_shares`.
WINDOW_SHARE = 1 / 16
# Different shapes of images whose functions together have about the size of one function for all shapes.
FEW_SHAPES = 4
# Of an operator's products, the part of one shape of image that is worth a function.
IMAGE_SHARE = 1 / 4
# As `WIDENED_SHARE`, for depthwise layers: their products wait for loads otherwise.
DEPTHWISE_SHARE = 1 / 5
# Bytes of a table that an element is worth.
TABLE_BYTES = 4

# What gives up nothing but bytes of the arena.
ARENA_TRADES = frozenset({Trade.SCRATCH, Trade.INPUT_SCRATCH, Trade.TILE_SCRATCH, Trade.SPARE_SCRATCH})

# None, or the reason why not.
Rule = Callable[[Case], str | None]


def refuse(case: Case, agreed: frozenset[Trade] = frozenset()) -> str | None:
    """Why a variant is not worth what it gives up, or has failed; None if it is.

    Args:
        agreed: what it may give up anyway.
    """
    failure = case.failure
    if failure is not None:
        return failure
    trades = case.kernel.trades - agreed - (ARENA_TRADES if case.policy.ram_limited else frozenset())
    if not trades:
        return None
    reasons = (_RULES[trade](case) for trade in Trade if trade in trades)
    return next((reason for reason in reasons if reason is not None), None)


def _at(levels: Collection[str], reason: str) -> Rule:
    """A rule that only looks at the level."""
    return lambda case: None if case.policy.level in levels else reason


def _long_code(case: Case) -> str | None:
    outputs = case.layer.whole.outputs[0].type.size
    return None if outputs >= FEWEST_OUTPUTS else f"its code needs {FEWEST_OUTPUTS} outputs to pay"


def _window_code(case: Case) -> str | None:
    if case.policy.level == "speed":
        return None
    kind = case.kernel.code_kind(case.layer.whole)
    share = case.policy.model.products_by_kind(case.kernel)[kind] / max(case.policy.model.products, 1)
    if case.policy.level == "balanced" and share >= WINDOW_SHARE:
        return None
    return "its code is too long for this part of the model's products; optimize = speed allows it"


def _image_code(case: Case) -> str | None:
    if case.policy.level == "speed":
        return None
    work = case.policy.model.products_by_kind(case.kernel)
    large = work[case.kernel.code_kind(case.layer.whole)] >= IMAGE_SHARE * work.total()
    if case.policy.level == "balanced" and (len(work) <= FEW_SHAPES or large):
        return None
    return "its code is for one shape of image: that shape is too small a part of the network's work"


def _input_scratch(case: Case) -> str | None:
    node, scratch = case.layer.node, case.kernel.input_scratch(case.layer)
    if scratch <= max(INPUT_SCRATCH, node.operands[0].type.nbytes + node.outputs[0].type.nbytes):
        return None
    return f"its inputs would take {scratch} bytes of scratch, more than input and output"


def _tile_scratch(case: Case) -> str | None:
    node, scratch = case.layer.node, case.kernel.extra_memory(case.layer)
    tensors = node.operands[0].type.nbytes + node.outputs[0].type.nbytes
    allowed = max(TILE_SCRATCH, TILE_SCRATCH_RATIO * tensors)
    return None if scratch <= allowed else f"its tiles would take {scratch} bytes of scratch, over {allowed}"


def _spare_scratch(case: Case) -> str | None:
    if far_from_largest(case.layer, case.policy.model):
        return None
    return "no tile is small enough for a layer that may decide how large the arena gets"


def _table(case: Case) -> str | None:
    size, table = case.layer.whole.outputs[0].type.size, case.kernel.table_bytes
    if case.policy.level == "speed" or (case.policy.level == "balanced" and size * TABLE_BYTES >= table):
        return None
    return f"its table of {table} bytes does not pay for {size} elements with optimize = {case.policy.level}"


def _step_table(case: Case) -> str | None:
    # Each element saves so many steps that the share of the time decides: see `flash_shares`.
    if case.policy.level != "size":
        return None
    return f"its table takes {case.kernel.table_bytes} bytes; optimize = size computes what is in it"


def _wide_weights(case: Case) -> str | None:
    if case.policy.level == "speed" or (case.policy.level == "balanced" and _affords_int16(case)):
        return None
    return "weights of 16 bits take too much flash"


def _affords_int16(case: Case) -> bool:
    node, model = case.layer.whole, case.policy.model
    if node.operands[0].type.dtype is not DType.INT8:
        return False
    if isinstance(node.op, DepthwiseConv2D):
        # Of what may be added, a layer has the part that it has of the depthwise products.
        room = model.int8_constants * DEPTHWISE_SHARE * node.macs()
        return case.kernel.extra_constants(case.layer) * model.products_by_kind(case.kernel).total() <= room
    # What is not among them comes after all of them.
    return isinstance(node.op, Conv2D) and model.int16_afforded.get(node, model.int16_afforded_by_all)


_SPEED = "optimize = speed allows it"
_RULES: Mapping[Trade, Rule] = {
    Trade.ONE_FOR_ALL: _at(["size"], "it is for optimize = size"),
    Trade.LONG_CODE: _long_code,
    Trade.WINDOW_CODE: _window_code,
    Trade.IMAGE_CODE: _image_code,
    Trade.UNROLLED: _at(["balanced", "speed"], "its loop is longer than what optimize = size wants"),
    # `balanced` has it where the share of the time is worth the flash: see `flash_shares`.
    Trade.WRITTEN_OUT: _at(["speed"], "the time that its loop saves is not worth the flash that it takes"),
    Trade.LONG_ITERATIONS: _at(["speed"], f"its loops are written out several times over; {_SPEED}"),
    Trade.SCRATCH: _at(["speed"], f"it takes up to twice the scratch; {_SPEED}"),
    Trade.INPUT_SCRATCH: _input_scratch,
    Trade.TILE_SCRATCH: _tile_scratch,
    Trade.SPARE_SCRATCH: _spare_scratch,
    Trade.TABLE: _table,
    Trade.STEP_TABLE: _step_table,
    Trade.WIDE_WEIGHTS: _wide_weights,
    Trade.TRANSFORMED_WEIGHTS: _at(["speed"], f"its weights take several times the flash; {_SPEED}"),
    Trade.RESTS: _at(["speed"], f"what would be taken off large weights would take much flash; {_SPEED}"),
    Trade.FOUR_BITS: four_bits,
    Trade.BYTE_WEIGHTS: _at(["size"], "to convert its weights takes time: it is for optimize = size"),
    Trade.HALF_FLOATS: half_floats,
}
