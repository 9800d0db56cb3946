"""Typed definition of the build reports: the fields of `<model>_report.json`, with rules and descriptions.

Writers create these objects, readers decode them, and the JSON Schema is generated from them. JSON has the
fields in this order. A field with the type `UnsetType` is written only if it has a value. Other fields with
defaults are always written, but reports of earlier versions may lack them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from microfold.support.decode import LARGEST

# Version of the report. Removing a field or changing its meaning increments it.
REPORT_VERSION = 2


def doc(text: str) -> Meta:
    """Return the description of a field."""
    return Meta(description=text)


Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Several = Annotated[int, Meta(ge=2, le=LARGEST)]
Integer = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
# Reports only state these numbers, which can exceed `LARGEST`.
Unbounded = Annotated[int, Meta(ge=0)]
BuildId = Annotated[str, Meta(pattern="^0x[0-9a-f]{8}u$")]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Level = Literal["size", "balanced", "speed"]

# Fields of a tensor type.
ElementType = Annotated[str, doc("type of the elements, e.g. `int8`")]
Shape = Annotated[tuple[Count, ...], doc("dimensions")]
Scales = Annotated[tuple[float, ...] | UnsetType, doc("quantisation scales: one, or one per channel")]
ZeroPoints = Annotated[tuple[int, ...] | UnsetType, doc("quantisation zero points, as many as scales")]
ChannelAxis = Annotated[Count | UnsetType, doc("axis of the channels that have their own scales")]


class ReportedOrigin(Struct, frozen=True):
    """File of the model."""

    file: Annotated[str, doc("name of the model's file, without folders")]
    size: Annotated[Count, doc("size of the file")]
    sha256: Annotated[Digest, doc("SHA-256 of the file, in hexadecimal digits")]
    command: Annotated[str, doc("command line of the build; empty for a build by the Python API")]


class ReportedSettings(Struct, frozen=True, kw_only=True):
    """Options of the build."""

    optimize: Annotated[Level, doc("optimisation level")]
    flash: Annotated[Count | None, doc("limit for constants and estimated code; null: no limit")]
    ram: Annotated[Count | None, doc("limit for arena and state; null: no limit")]
    objective: Annotated[
        str,
        doc(
            "prices of one percent of the time, the flash and the RAM, e.g. `cycles=3,flash=1,ram=1`; "
            "empty: prices of `optimize`"
        ),
    ] = ""
    io: Annotated[
        Literal["arena", "caller", "rows"],
        doc("whether inputs and outputs are in the arena, are buffers of the caller, or arrive row by row"),
    ]
    rows: Annotated[Literal["auto", "never"], doc("whether layers may be streamed within a run")] = "auto"
    align: Annotated[
        Literal[8, 16, 32, 64],
        doc(
            "alignment of the arena and of everything in it, in bytes; "
            "the size of the arena is a multiple of it"
        ),
    ] = 8
    memory: Annotated[
        Literal["context", "split", "parts"],
        doc("whether the arena is part of the context, a separate object, or several objects"),
    ] = "context"
    io_layout: Annotated[
        str, doc("layout of image inputs and outputs, e.g. `NHWC`; `model`: as in the model")
    ]
    input_type: Annotated[
        tuple[str, ...], doc("`TYPE` or `NAME=TYPE`: element types of inputs that differ from the model's")
    ] = ()
    output_type: Annotated[
        tuple[str, ...], doc("`TYPE` or `NAME=TYPE`: element types of outputs that differ from the model's")
    ] = ()
    sliding: Annotated[Count | None, doc("frame axis of the input, if runs take only new frames")] = None
    sliding_step: Annotated[Positive | None, doc("new frames per run; null: the minimum")] = None
    single_file: Annotated[bool, doc("whether weights and code are in one C file")]
    weights_section: Annotated[str, doc("linker section of the constants; empty: the default section")]
    weights: Annotated[
        Literal["arrays", "blob"], doc("whether constants are C arrays, or in a binary file")
    ] = "arrays"
    place: Annotated[tuple[str, ...], doc("`LAYER=SECTION`: linker sections of layers' constants")] = ()
    place_code: Annotated[tuple[str, ...], doc("`LAYER=SECTION`: linker sections of layers' kernels")] = ()
    kernels: Annotated[
        tuple[str, ...],
        doc("`LAYER=KERNEL` or `OPERATOR=KERNEL`: the only kernels allowed for these layers"),
    ] = ()
    max_iterations: Annotated[
        Positive | None, doc("maximum number of iterations of loops that have no other bound")
    ]
    step: Annotated[bool, doc("whether a function runs one layer")]
    taps: Annotated[bool, doc("whether runs write a tensor trace; sizes of code and stack exclude it")] = (
        False
    )
    license: Annotated[str, doc("SPDX expression of the generated files")]
    numerics: Annotated[
        Literal["exact", "relaxed"], doc("whether all outputs are bit-exact, or rewrites may change them")
    ]
    external: Annotated[tuple[str, ...], doc("external code generators, in order of preference")]
    external_flags: Annotated[tuple[str, ...], doc("compiler and linker flags that find their libraries")]


class ReportedPasses(Struct, frozen=True):
    """Settings of the graph passes."""

    opt_level: Annotated[Count, doc("passes up to this level run")]
    required_pass: Annotated[tuple[str, ...], doc("passes that run at every level")]
    disabled_pass: Annotated[tuple[str, ...], doc("passes that do not run")]


class ReportedRam(Struct, frozen=True, kw_only=True):
    """RAM, in bytes."""

    arena: Annotated[Count, doc("memory of all tensors and scratch memory")]
    arena_bound: Annotated[
        Count,
        doc(
            "proved lower bound of all plans for these kernels in this order; if the arena is equally large, "
            "it is proved minimal"
        ),
    ]
    parts: Annotated[
        tuple[Count, ...], doc("sizes of the objects that the arena consists of; empty: one object")
    ] = ()
    state: Annotated[Count, doc("kept between runs")]
    stack: Annotated[Count | None, doc("upper bound")]
    stack_used: Annotated[Count | UnsetType, doc("stack depth that a simulated run wrote to")] = UNSET

    @property
    def total(self) -> int:
        """Sum of all known parts, in bytes."""
        return self.arena + self.state + (self.stack or 0)


class ReportedFlash(Struct, frozen=True):
    """Flash, in bytes."""

    weights: Annotated[Count, doc("constants")]
    code: Annotated[Count | None, doc("generated functions, and constants that are not weights")]
    library: Annotated[Count | None, doc("functions of the C library that the code needs")]
    padding: Annotated[Count | None, doc("bytes that only align the other parts")]

    @property
    def total(self) -> int:
        """Sum of all known parts, in bytes."""
        return self.weights + (self.code or 0) + (self.library or 0) + (self.padding or 0)


class _Typed:
    """Text of a tensor type."""

    __slots__ = ()

    dtype: Any
    shape: Any

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class ReportedTensor(_Typed, Struct, frozen=True):
    """Type of a tensor."""

    dtype: ElementType
    shape: Shape
    scales: Scales = UNSET
    zero_points: ZeroPoints = UNSET
    axis: ChannelAxis = UNSET


class ReportedPort(_Typed, Struct, frozen=True, kw_only=True):
    """Input or output of the model."""

    name: Annotated[str, doc("name in the model")]
    dtype: ElementType
    shape: Shape
    scales: Scales = UNSET
    zero_points: ZeroPoints = UNSET
    axis: ChannelAxis = UNSET
    bytes: Annotated[Count, doc("size of the tensor")]
    labels: Annotated[tuple[str, ...] | UnsetType, doc("names of an output's classes")] = UNSET


class ReportedCandidate(Struct, frozen=True):
    """Kernel that supports a layer."""

    kernel: Annotated[str, doc("name of the kernel")]
    estimated_instructions: Annotated[Count, doc("instructions of the layer in one run, by the cost model")]


class ReportedRejection(Struct, frozen=True):
    """Kernels that do not support a layer, for one reason."""

    reason: Annotated[str, doc("rule that the layer does not meet, with the values found")]
    kernels: Annotated[tuple[str, ...], doc("names of the kernels")]


class ReportedAccumulator(Struct, frozen=True):
    """Bounds of a layer's sums."""

    low: Annotated[Integer, doc("smallest possible sum of any channel")]
    high: Annotated[Integer, doc("largest possible sum of any channel")]
    largest_partial: Annotated[
        Count, doc("largest possible magnitude of a partial sum, in any order of summation")
    ]
    type_bits: Annotated[Literal[32, 64], doc("width of the accumulator")] = 32


class ReportedLayer(Struct, frozen=True, kw_only=True):
    """Call of a kernel."""

    name: Annotated[str, doc("name of the layer in the generated code")]
    tensor: Annotated[str, doc("name of the result in the model")]
    op: Annotated[str, doc("operator")]
    fused: Annotated[tuple[str, ...], doc("operators that the same call computes")]
    kernel: Annotated[str, doc("name of the selected kernel")]
    candidates: Annotated[
        tuple[ReportedCandidate, ...], doc("kernels that support the layer, in the order of selection")
    ]
    refused: Annotated[
        tuple[ReportedRejection, ...], doc("kernels that do not support the layer, by reason")
    ] = ()
    macs: Annotated[Count, doc("multiply-accumulates in one run")]
    estimated_instructions: Annotated[
        Count | None, doc("instructions in one run, by the cost model; null for external code")
    ]
    instructions: Annotated[Count | None, doc("instructions in one run, executed on a simulated core")]
    estimated_cycles: Annotated[Count | None, doc("cycles in one run, as for the whole run")]
    least_cycles: Annotated[
        Count | None, doc("lower limit of the cycles without stalls, as for the whole run")
    ] = None
    measured_cycles: Annotated[
        Count | None, doc("cycles of one call, by the database of the build; null: not measured")
    ] = None
    scratch: Annotated[Count, doc("bytes of scratch memory")]
    fetched: Annotated[
        Count, doc("bytes of constants that are copied into the arena while the previous layer runs")
    ] = 0
    weights: Annotated[Count, doc("bytes of constants")]
    output: Annotated[ReportedTensor, doc("type of the result")]
    output_offset: Annotated[Count, doc("offset of the result in its memory")]
    accumulator: Annotated[
        ReportedAccumulator | None, doc("bounds of the sums; null if the layer has no integer sums")
    ]
    accumulator_bits: Annotated[
        Count | None,
        doc("bits of the signed integer that holds every partial sum, in any order of summation"),
    ]


class ReportedEnd(Struct, frozen=True):
    """End of an edge."""

    kind: Annotated[Literal["input", "layer", "state", "output"], doc("kind of the end")]
    index: Annotated[Count, doc("number among the ends of this kind")]


class ReportedEdge(Struct, frozen=True):
    """Value between its source and one reader."""

    source: Annotated[ReportedEnd, doc("source of the value")] = field(name="from")
    reader: Annotated[ReportedEnd, doc("reader of the value")] = field(name="to")
    tensor: Annotated[str, doc("name of the value in the model")]
    bytes: Annotated[Count, doc("size of the value")]


class ReportedBlock(Struct, frozen=True, kw_only=True):
    """Bytes of the arena, and the layers during which they are alive."""

    name: Annotated[str, doc("names of the values in the block, or its use")]
    kind: Annotated[
        Literal["input", "result", "scratch", "constants"],
        doc("input, result of a layer, scratch memory, or prefetched constants"),
    ] = "result"
    offset: Annotated[Count, doc("offset in the arena")]
    bytes: Annotated[Count, doc("size of the block")]
    first_layer: Annotated[Count, doc("first layer during which the block is alive")]
    last_layer: Annotated[Count, doc("last layer during which the block is alive")]

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.offset + self.bytes


class ReportedWindow(Struct, frozen=True, kw_only=True):
    """Line buffer of a tensor."""

    tensor: Annotated[str, doc("name of the tensor in the model")]
    offset: Annotated[Count, doc("offset in the arena")]
    rows: Annotated[Positive, doc("capacity in rows, including padding")]
    bytes: Annotated[Positive, doc("size of the line buffer")]
    whole: Annotated[Positive | None, doc("size of the whole tensor")] = None
    rows_per_call: Annotated[Positive, doc("rows that each call of its layer computes")]
    kept: Annotated[Literal["window", "ring", "carried"], doc("form of the line buffer")] = "window"
    apart: Annotated[
        Count, doc("bytes of a separate buffer: for the newest rows of a ring, or for staged rows")
    ] = 0


class ReportedStreaming(Struct, frozen=True, kw_only=True):
    """Streamed layers, which are computed row by row."""

    layers: Annotated[Positive, doc("number of streamed layers")]
    longest_push: Annotated[Count | None, doc("estimated instructions of the longest push of a row")]
    longest_push_cycles: Annotated[
        Count | None,
        doc("estimated cycles of the longest push of a row; null if the target has no cycle model"),
    ] = None
    moved: Annotated[Count, doc("bytes of rows that a run copies within its line buffers")]
    windows: Annotated[tuple[ReportedWindow, ...], doc("line buffers of tensors")]


class ReportedRowBuffer(Struct, frozen=True):
    """Tensor whose rows are kept for later runs."""

    tensor: Annotated[str, doc("name of the tensor in the model")]
    rows: Annotated[Several, doc("number of kept rows")]
    added: Annotated[Positive, doc("new rows in each run")]
    bytes: Annotated[Positive, doc("bytes in the state")]


class ReportedSliding(Struct, frozen=True):
    """Runs that read only new frames, and reuse results of earlier runs."""

    axis: Annotated[Count, doc("frame axis of the model's input")]
    frames: Annotated[Several, doc("frames of the model's window")]
    step: Annotated[Positive, doc("new frames per run")]
    warmup_runs: Annotated[Positive, doc("first run whose outputs depend only on frames that were passed in")]
    macs: Annotated[Count, doc("MACs of a run, before optimisation")]
    window_macs: Annotated[Count, doc("MACs of a run over the whole window, before optimisation")]
    kept: Annotated[tuple[ReportedRowBuffer, ...], doc("tensors whose rows are kept for later runs")]


class ReportedLibrary(Struct, frozen=True):
    """Library with which the code must be linked."""

    name: Annotated[str, doc("name of the library")]
    headers: Annotated[tuple[str, ...], doc("headers that the generated code includes")]
    functions: Annotated[tuple[str, ...], doc("functions that the generated code calls")]


class ReportedAccumulators(Struct, frozen=True):
    """Overflow proof of all sums."""

    proved: Annotated[bool, doc("whether no sum can overflow its type")]
    largest: Annotated[Unbounded, doc("largest possible magnitude of a partial sum in `largest_layer`")]
    limit: Annotated[Unbounded, doc("magnitude from which a sum of that layer overflows its type")]
    largest_layer: Annotated[
        str, doc("layer whose sums come closest to the limit of their type; may be empty")
    ]
    largest_bits: Annotated[Count, doc("maximum of `layers[].accumulator_bits`")]
    unproved_layers: Annotated[tuple[str, ...], doc("layers whose sums are not proved to stay in their type")]
    wrapping_layers: Annotated[tuple[str, ...], doc("layers whose sums wrap around, as in the reference")]


class ReportedRemoval(Struct, frozen=True):
    """Channels that are not computed, for one reason and one range of values."""

    reason: Annotated[str, doc("`constant`: always the same value; `unread`: no layer reads them")]
    low: Annotated[Integer, doc("smallest value of the channels")]
    high: Annotated[Integer, doc("largest value of the channels")]
    channels: Annotated[tuple[Count, ...], doc("numbers of the channels before pruning")]


class ReportedPrunedValue(Struct, frozen=True):
    """Value from which channels were removed."""

    op: Annotated[str, doc("operator that computes the value")]
    tensor: Annotated[str, doc("name of the value")]
    channels: Annotated[Count, doc("number of channels before pruning")]
    removed: Annotated[tuple[ReportedRemoval, ...], doc("removed channels, by reason and range of values")]


class ReportedPruning(Struct, frozen=True):
    """Channels that one run of the pruning pass has removed."""

    graph: Annotated[str, doc("name of the graph")]
    macs_before: Annotated[Count, doc("MACs of the graph before pruning")]
    macs_after: Annotated[Count, doc("MACs of the graph after pruning")]
    channels: Annotated[Count, doc("number of removed channels")]
    values: Annotated[tuple[ReportedPrunedValue, ...], doc("values that lost channels")]


class ReportedChange(Struct, frozen=True):
    """Change by relaxed numerics."""

    where: Annotated[str, doc("changed place in the graph")]
    change: Annotated[str, doc("description of the change")]


class OutputDeviation(Struct, frozen=True):
    """Deviation of one output from the imported graph."""

    output: Annotated[Count, doc("number of the output")]
    name: Annotated[str, doc("name of the output")]
    largest_steps: Annotated[Count | None, doc("largest deviation in quantisation steps; null for floats")]
    largest: Annotated[float | str, doc("largest deviation as a real number; inf, -inf and nan are strings")]
    changed: Annotated[Count, doc("number of elements that deviate")]
    elements: Annotated[Count, doc("number of compared elements")]


class ReportedRelaxations(Struct, frozen=True):
    """Changes that are not bit-exact."""

    changes: Annotated[tuple[ReportedChange, ...], doc("changes of the graph")]
    input_sets: Annotated[Count, doc("number of compared input sets")]
    outputs: Annotated[tuple[OutputDeviation, ...], doc("deviation of each output")]


class ReportedMemory(Struct, frozen=True):
    """Usage of a memory of the target, in bytes."""

    name: Annotated[str, doc("name of the memory")]
    size: Annotated[Positive, doc("bytes available for models")]
    cycles: Annotated[Positive, doc("cycles of one access")]
    use: Annotated[tuple[Literal["data", "constants", "code"], ...], doc("allowed contents")]
    context: Annotated[Count, doc("bytes of the context in this memory")]
    constants: Annotated[Count, doc("bytes of constants that are read from this memory")]
    loaded: Annotated[Count, doc("bytes that are copied from this memory to another one at start-up")]
    used: Annotated[Count, doc("sum of these bytes")]
    prefetch: Annotated[bool, doc("whether its constants are copied into the arena before they are read")] = (
        False
    )


class ReportedImage(Struct, frozen=True):
    """Size of the whole simulated firmware, in bytes."""

    flash: Annotated[Count, doc("flash of the firmware")]
    ram: Annotated[Count, doc("RAM of the firmware")]


class WhatIfBuild(Struct, frozen=True):
    """Build for another target or level."""

    target: Annotated[str, doc("name of the target")]
    optimize: Annotated[Level, doc("optimisation level")]
    problem: Annotated[str | None, doc("reason why it cannot be compiled; the figures are then null")]
    ram: Annotated[Count | None, doc("arena, state and, if measured, stack")]
    flash: Annotated[Count | None, doc("weights and, if measured, code, library functions and padding")]
    measured: Annotated[bool, doc("whether `flash` includes code, and `ram` the stack")]
    estimated_instructions: Annotated[Count | None, doc("instructions of one run, by the cost model")]
    estimated_cycles: Annotated[Count | None, doc("cycles of one run; null if the target has no cycle model")]


class Tradeoff(Struct, frozen=True):
    """Pareto-optimal build: sizes in bytes, and estimates of one run."""

    optimize: Annotated[Literal["size", "balanced"], doc("level for the C compiler: `size` or not")]
    ram_budget: Annotated[Count, doc("limit of the RAM that leads to this build")]
    flash_budget: Annotated[Count, doc("limit of the flash that leads to this build")]
    ram: Annotated[Count, doc("arena and state")]
    flash: Annotated[Count, doc("constants and estimated code")]
    estimated_instructions: Annotated[Count | None, doc("instructions of one run, by the cost model")]
    estimated_cycles: Annotated[Count | None, doc("cycles of one run; null if the target has no cycle model")]

    @property
    def arguments(self) -> str:
        """Options of `microfold build` for this build."""
        size = "--optimize size " if self.optimize == "size" else ""
        return f"{size}--objective cycles=1 --rows never --ram {self.ram_budget} --flash {self.flash_budget}"


class BuildReport(Struct, frozen=True, kw_only=True):
    """Content of <model>_report.json, which `microfold build` writes, and output of `microfold bench --json`.

    Sizes are in bytes; null means not measured or unknown.
    """

    report_version: Annotated[Literal[2], doc("version of this schema")] = REPORT_VERSION
    microfold_version: Annotated[str, doc("version of microfold")]
    api_version: Annotated[Count, doc("version of the API in the generated header, for firmware")]
    build_id: Annotated[
        BuildId | None, doc("C constant in all files of the build; null if no files are written")
    ]
    origin: Annotated[ReportedOrigin | None, doc("file of the model; null for a graph in memory")]
    model: Annotated[str, doc("prefix of all C names")]
    target: Annotated[str, doc("name of the target")]
    options: Annotated[ReportedSettings, doc("options of the build")]
    passes: Annotated[ReportedPasses, doc("settings of the graph passes")]
    macs: Annotated[Count, doc("multiply-accumulates of one run")]
    estimated_instructions: Annotated[Count | None, doc("instructions of one run, by the cost model")]
    instructions: Annotated[Count | None, doc("instructions of one run, executed on a simulated core")]
    estimated_cycles: Annotated[
        Count | None,
        doc(
            "cycles of one run, by the core's timing table or pipeline model, from executed instructions if "
            "available, else from estimated ones"
        ),
    ]
    cycles_source: Annotated[str | None, doc("source of the timing table or pipeline model")]
    cycles_error: Annotated[
        Count | None,
        doc(
            "error of the timing table or pipeline model for a whole model, in percent, as stated by the "
            "target; the error of a build's instruction estimate is not included; null if there are no "
            "cycles, or the target states none"
        ),
    ]
    least_cycles: Annotated[
        Count | None,
        doc(
            "lower limit of the cycles of the executed instructions without stalls: for issue, or in the "
            "busiest unit"
        ),
    ] = None
    kernels_proved: Annotated[
        bool,
        doc(
            "whether it is proved that no selection of kernels needs fewer estimated cycles within the same "
            "flash and arena; always false if layers are streamed, or constants have a limit"
        ),
    ] = False
    measured_on: Annotated[
        str | None,
        doc("board, clock in Hz and caches of the `measured_cycles`; null: the build used estimates only"),
    ] = None
    measured_run: Annotated[
        Count | None,
        doc("cycles of a whole run of exactly this program on `measured_on`; null: not measured"),
    ] = None
    measured_choices: Annotated[
        dict[str, str],
        doc("decisions for the whole program that follow from measurements instead of estimates, by name"),
    ] = {}
    ram: Annotated[ReportedRam, doc("RAM")]
    flash: Annotated[ReportedFlash, doc("flash")]
    inputs: Annotated[tuple[ReportedPort, ...], doc("inputs of the model")]
    outputs: Annotated[tuple[ReportedPort, ...], doc("outputs of the model")]
    labels_ignored: Annotated[str | None, doc("reason why labels in the model are not used")]
    needs: Annotated[
        tuple[str, ...], doc("requirements of the code on the core and the compiler, as in the header")
    ] = ()
    layers: Annotated[tuple[ReportedLayer, ...], doc("layers in the order of their calls")]
    edges: Annotated[
        tuple[ReportedEdge, ...],
        doc(
            "values between layers, inputs, states and outputs; an operation without code is not a layer, "
            "and edges pass through it"
        ),
    ]
    blocks: Annotated[tuple[ReportedBlock, ...], doc("blocks of the arena, in order of time")]
    stream: Annotated[
        ReportedStreaming | None,
        doc("streamed layers, which are computed row by row; null if there are none"),
    ] = field(default=None, name="rows")
    sliding: Annotated[
        ReportedSliding | None,
        doc("results that runs reuse if they read only new frames; null if a run reads the whole input"),
    ] = None
    libraries: Annotated[tuple[ReportedLibrary, ...], doc("libraries with which the code must be linked")]
    accumulators: Annotated[ReportedAccumulators, doc("overflow proof of all sums")]
    pruned: Annotated[tuple[ReportedPruning, ...], doc("channels that are not computed")]
    relaxed: Annotated[
        ReportedRelaxations | None,
        doc("differences from the imported graph by relaxed numerics; null if the build is bit-exact"),
    ]
    memories: Annotated[
        tuple[ReportedMemory, ...], doc("memories of the target; empty if it defines none")
    ] = ()
    instructions_per_mac: Annotated[
        float | UnsetType | None, doc("`instructions` divided by `macs`; null without MACs")
    ] = UNSET
    image: Annotated[ReportedImage | UnsetType, doc("size of the whole simulated firmware")] = UNSET
    what_if: Annotated[
        tuple[WhatIfBuild, ...] | UnsetType,
        doc("builds of the model for other targets and levels, by `microfold report --what-if`"),
    ] = UNSET
    tradeoffs: Annotated[
        tuple[Tradeoff, ...] | UnsetType,
        doc("Pareto-optimal builds of the model, by `microfold report --tradeoffs`"),
    ] = UNSET

    @property
    def time(self) -> int | None:
        """Instructions of one run: executed ones if they were counted, else estimated ones."""
        return self.instructions if self.instructions is not None else self.estimated_instructions
