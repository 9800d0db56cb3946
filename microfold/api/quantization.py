"""`microfold.quantize`: quantisation of a float model with the options of the command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from microfold.api.compilation import load_target
from microfold.api.results import QuantizationResult
from microfold.errors import InputError
from microfold.frontend import text_form
from microfold.frontend.model_source import ModelSource, read_source
from microfold.ir.graph import Graph
from microfold.ir.types import Array
from microfold.quantization.schemes import SCHEMES
from microfold.quantization.session import QuantizationSettings, check_outputs, run
from microfold.target import Target

SchemeName = Literal["int8", "int16x8", "int4", "dynamic", "float16"]
Samples: TypeAlias = "str | os.PathLike[str] | Array | Sequence[Array] | Mapping[str, Array]"


def quantize(
    model: ModelSource,
    data: Samples,
    output: str | os.PathLike[str] | None = None,
    *,
    scheme: SchemeName = "int8",
    layer: Sequence[str] = (),
    compare: bool = False,
    samples: int = 128,
    held_back: int = 64,
    seed: int = 0,
    labels: str | os.PathLike[str] | Array | Sequence[int] | None = None,
    mean: float | Sequence[float] = (),
    std: float | Sequence[float] = (),
    target: str | os.PathLike[str] | Target = "cortex-m4",
) -> QuantizationResult:
    """Quantise a float model, and check the result layer by layer, as `microfold quantize` does.

    This requires ai-edge-quantizer: ``pip install 'microfold[quantize]'``.

    Args:
        model: path of a `.tflite` file or of a C array of one; the content of a `.tflite` file as bytes; or a
            file object that is open for reading bytes.
        data: samples of the inputs: an array [samples, shape of the input]; such an array for each input, in
            order or by the inputs' names; or the path of a `.npy`, `.npz` or `.csv` file, or of a folder of
            images or `.wav` files.
        output: `.tflite` file to write; None: the model is only returned.
        scheme: types of weights and activations; docs/quantize.md describes them.
        layer: schemes of single layers, each ``LAYER=SCHEME``, with the number of a layer in the report or
            its tensor's name, and ``int8``, ``int16x8`` or ``float``.
        compare: whether to try all schemes; the report then has their results, too.
        samples: maximum number of samples for calibration.
        held_back: maximum number of other samples, for the comparison with the float model.
        seed: seed that draws the samples.
        labels: class of each sample, for the accuracy: integers, a `.npy` file, or a text file with a number
            in each line.
        mean: number, or one for each channel, that is subtracted from raw values such as pixels. Empty: by
            the model's metadata.
        std: number, or one for each channel, by which the differences from `mean` are divided.
        target: target for which RAM, flash and cycles are stated.

    Raises:
        MicrofoldError: ai-edge-quantizer is missing or fails, model or data do not fit, an option is wrong,
            or the file cannot be written.
    """
    _check(scheme, layer, {"samples": (samples, 1), "held_back": (held_back, 1), "seed": (seed, 0)})
    settings = QuantizationSettings(
        Path(data) if isinstance(data, str | os.PathLike) else data,
        tuple(layer),
        samples,
        held_back,
        seed,
        Path(labels) if isinstance(labels, str | os.PathLike) else labels,
        _numbers("mean", mean),
        _numbers("std", std),
    )
    core = target if isinstance(target, Target) else load_target(target)
    path, content = _read(model)
    if output is not None and not isinstance(model, bytes | bytearray | memoryview):
        check_outputs(path, {"--output": Path(output)})
    schemes = [*SCHEMES.values()] if compare else [SCHEMES[scheme]]
    report = run(path.name, content, schemes, settings, core, lambda _: nullcontext(_no_progress))
    result = QuantizationResult(report, report.of_scheme(scheme))
    if output is not None:
        result.save(output)
    return result


def _read(model: ModelSource) -> tuple[Path, bytes]:
    """Return the path of a model, or the name in its place, and its content."""
    if isinstance(model, Graph):
        raise InputError("quantize requires a .tflite file; the model is an imported graph: pass its file")
    path, content = read_source(model)
    if path.suffix == text_form.SUFFIX:
        raise InputError(f"quantize requires a .tflite file; {path} is a graph in text form")
    return path, content


def _check(scheme: object, layer: object, counts: Mapping[str, tuple[object, int]]) -> None:
    """Check the types and ranges of options.

    Args:
        counts: integers by the names of their options, each with its minimum.
    """
    wrong: list[str] = []
    if scheme not in get_args(SchemeName):
        wrong.append(f"scheme must be {', '.join(get_args(SchemeName))}; got {scheme!r}")
    if not isinstance(layer, list | tuple) or not all(isinstance(each, str) for each in layer):
        wrong.append(f"layer must be a list of texts; got {layer!r}")
    for name, (value, least) in counts.items():
        if type(value) is not int or value < least:
            wrong.append(f"{name} must be an integer of at least {least}; got {value!r}")
    if wrong:
        raise InputError("; ".join(wrong))


def _numbers(name: str, value: object) -> tuple[float, ...]:
    try:
        found = np.atleast_1d(np.asarray(value, np.float64))
    except (TypeError, ValueError):
        found = np.full(1, np.nan)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise InputError(f"{name} must be a finite number, or one for each channel; got {value!r}")
    return tuple(map(float, found))


def _no_progress(_done: int, _all: int) -> None:
    """Show nothing."""
