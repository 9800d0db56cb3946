"""One quantisation from the model's file to the report."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from microfold.errors import InputError, MicrofoldError
from microfold.frontend.tflite import ImportTrace, trace_model
from microfold.host.ports import Port
from microfold.ir.graph import Graph
from microfold.ir.types import Array
from microfold.quantization.advice import advise
from microfold.quantization.build import Verified, figures, verified
from microfold.quantization.compare import LayerQuality, OutputQuality, QuantizedModel, compare
from microfold.quantization.data import Data, SampleSource, open_data
from microfold.quantization.engine import check_installed, quantize
from microfold.quantization.labels import LabelSource, read_classes
from microfold.quantization.layers import FloatLayer, layer_schemes, layers_of
from microfold.quantization.normalise import Normalised, normalise
from microfold.quantization.preprocessing import read_preprocessing, with_options
from microfold.quantization.schemes import Scheme, recipe
from microfold.quantization.split import SampleSplit, split
from microfold.reporting.what_if import WhatIfBuild
from microfold.target import Target

Progress = Callable[[int, int], None]
# Shows the progress of a phase with this name.
ShowProgress = Callable[[str], AbstractContextManager[Progress]]


class QuantizationSettings(Struct, frozen=True, eq=False):
    """Options of a quantisation.

    Attributes:
        data: samples of the inputs.
        layers: ``LAYER=SCHEME`` for single layers.
        samples, held_back: maximum number of samples for calibration and for the comparison.
        labels: class of each sample; None: unknown.
        mean, std: preprocessing of raw values; empty: by the model's metadata.
    """

    data: SampleSource
    layers: tuple[str, ...] = ()
    samples: int = 128
    held_back: int = 64
    seed: int = 0
    labels: LabelSource | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


class SchemeResult(Struct, frozen=True, eq=False):
    """Model of one scheme, with its checks.

    Attributes:
        data: bytes of the `.tflite` file; empty if there is a problem.
        problem: reason why there is no model, or why microfold cannot compile it.
    """

    scheme: Scheme
    data: bytes
    problem: str
    figures: WhatIfBuild | None = None
    verified: Verified | None = None
    outputs: tuple[OutputQuality, ...] = ()
    layers: tuple[LayerQuality, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


class Quantisation(Struct, frozen=True, eq=False):
    """Results of all schemes, and the float model for comparison.

    Attributes:
        size: bytes of the float file.
        cycles_error: error of the target's cycle estimates in percent; None: it has no cycle model.
        figures: figures of the float model on the target.
        accuracy: accuracy of the float model; None without labels.
        notes: changes to the model, and other remarks.
    """

    model: str
    size: int
    target: str
    cycles_error: int | None
    split: SampleSplit
    count: int
    figures: WhatIfBuild
    accuracy: float | None
    notes: tuple[str, ...]
    results: tuple[SchemeResult, ...] = field(default_factory=tuple)

    def of_scheme(self, scheme: str) -> SchemeResult:
        """Return the result of a scheme that was tried.

        Raises:
            InputError: there is no model for this scheme.
        """
        found = next(result for result in self.results if result.scheme.name == scheme)
        if not found.data:
            raise InputError(f"--scheme {scheme} has no result: {found.problem}")
        return found


class _Job(Struct, frozen=True, eq=False):
    """A float model with its data."""

    file: str
    traced: ImportTrace
    normalised: Normalised
    layers: tuple[FloatLayer, ...]
    chosen: dict[str, str]
    split: SampleSplit
    calibration: tuple[Array, ...]
    held_back: tuple[Array, ...]


def check_outputs(model: Path, outputs: Mapping[str, Path | None]) -> None:
    """Check that no output replaces the float model or another output.

    Args:
        outputs: files to write, by option; None: nothing is written.

    Raises:
        InputError: two are the same file.
    """
    taken = [(model, f"the float model {model}")]
    for option, output in outputs.items():
        if output is None:
            continue
        for path, other in taken:
            if _is_same_file(output, path):
                raise InputError(f"{option} must not be {other}: choose another name")
        taken.append((output, f"the file of {option}"))


def _is_same_file(one: Path, other: Path) -> bool:
    """Return whether two paths are the same file; both can be missing."""
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return one.absolute() == other.absolute()


def run(
    file: str,
    data: bytes,
    schemes: Sequence[Scheme],
    settings: QuantizationSettings,
    target: Target,
    show: ShowProgress,
) -> Quantisation:
    """Quantise a model by each scheme, and check the results.

    Args:
        file: name of the model's file, for messages and names of models.
        data: content of a `.tflite` file.

    Raises:
        MicrofoldError: the model or the data do not fit, or a single scheme cannot be applied.
    """
    check_installed()
    traced = trace_model(data, Path(file).stem, file)
    ports = [Port(value.name, value.type) for value in traced.graph.inputs]
    if not any(port.dtype == np.float32 for port in ports):
        types = ", ".join(str(port.type) for port in ports)
        raise InputError(
            f"quantize requires a model with float32 inputs; those of {file} are {types}: "
            "convert the float model again, or compile this one with `microfold build`"
        )
    normalised = normalise(data, file)
    layers = layers_of(traced, normalised.operators)
    chosen = layer_schemes(settings.layers, layers)
    rules, ignored = read_preprocessing(data, len(ports))
    samples = open_data(
        settings.data, ports, [with_options(rule, settings.mean, settings.std) for rule in rules]
    )
    parts = split(samples.count, settings.samples, settings.held_back, settings.seed)
    labels = _labels(settings, samples, traced.graph, parts)
    calibration, held_back = samples.read(parts.calibration), samples.read(parts.held_back)
    job = _Job(file, traced, normalised, layers, chosen, parts, calibration, held_back)
    made = [_made(job, scheme, show, single=len(schemes) == 1) for scheme in schemes]
    candidates = [QuantizedModel(graph, layers) if graph is not None else None for _, graph in made]
    with show("samples compared") as progress:
        accuracy = compare(
            traced.graph, [each for each in candidates if each is not None], held_back, labels, progress
        )
    results: list[SchemeResult] = []
    with show("models built") as progress:
        progress(0, len(made) + 1)
        original = figures(traced.graph, target)
        for (result, _), candidate in zip(made, candidates, strict=True):
            progress(1 + len(results), len(made) + 1)
            checked = (
                result if candidate is None else _checked(result, candidate, job, target, labels is not None)
            )
            results.append(checked)
    notes = [*normalised.changes, *([ignored] if ignored else []), *_kept_weights(traced.graph)]
    return Quantisation(
        file,
        len(data),
        target.name,
        target.cycle_model.error if target.cycle_model is not None else None,
        parts,
        samples.count,
        original,
        accuracy,
        tuple(notes),
        tuple(results),
    )


def _labels(
    settings: QuantizationSettings, samples: Data, graph: Graph, parts: SampleSplit
) -> list[int] | None:
    """Return the classes of the held-back samples."""
    if settings.labels is None:
        return None
    classes = read_classes(settings.labels, samples.count, graph.outputs[0].type)
    return [classes[index] for index in parts.held_back]


def _made(
    job: _Job, scheme: Scheme, show: ShowProgress, *, single: bool
) -> tuple[SchemeResult, Graph | None]:
    """Return the model of a scheme and its graph, or the problem if there are other schemes."""
    try:
        with show(f"{scheme.name}: steps") as progress:
            data = quantize(job.normalised, recipe(scheme, job.chosen), job.calibration, progress)
        name = f"{Path(job.file).stem}_{scheme.name}"
        graph = trace_model(data, name, f"{scheme.name} model of {job.file}").graph
    except MicrofoldError as error:
        if single:
            raise
        return SchemeResult(scheme, b"", str(error)), None
    return SchemeResult(scheme, data, ""), graph


def _checked(
    result: SchemeResult, candidate: QuantizedModel, job: _Job, target: Target, labelled: bool
) -> SchemeResult:
    samples = [candidate.quantized(inputs) for inputs in zip(*job.held_back, strict=True)]
    layers = candidate.layer_qualities()
    found = figures(candidate.graph, target)
    return SchemeResult(
        result.scheme,
        result.data,
        found.problem or "",
        found,
        verified(candidate.graph, samples),
        candidate.output_qualities(len(job.held_back[0]) if labelled else 0),
        layers,
        tuple(advise(result.scheme, layers)),
    )


def _kept_weights(graph: Graph) -> list[str]:
    """Return a note if the float model has quantised weights, which stay as they are."""
    count = sum(value.type.quant is not None for value in graph.constants)
    return [f"{count} constants of the model are quantised already, and stay as they are"] if count else []
