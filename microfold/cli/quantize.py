"""microfold quantize"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microfold.cli.common import print_json, progress_bar
from microfold.cli.default_target import CORE, choose_target
from microfold.cli.options import Json, TargetName, TfliteModel, words
from microfold.cli.outputs import named
from microfold.errors import InputError
from microfold.quantization.schemes import SCHEMES

_SCHEMES = tuple(SCHEMES)


def quantize(
    model: TfliteModel,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Samples of the inputs: .npy, .npz (by name or order of the inputs), .csv (one sample per "
            "line), or a folder of images or .wav files.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", callback=named, help="The .tflite file to write.", show_default=False),
    ] = None,
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme",
            help="int8: weights and activations; int16x8: int16 activations; int4: int4 weights; dynamic: "
            "int8 weights, float inputs and outputs; float16: float16 weights.",
            autocompletion=words(*_SCHEMES),
        ),
    ] = "int8",
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layer",
            metavar="LAYER=SCHEME",
            help="Scheme of one layer, by its number in the report or its tensor's name: int8, int16x8 or "
            "float. Repeatable.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Try all schemes, and show them in a table.")
    ] = False,
    samples: Annotated[
        int, typer.Option("--samples", min=1, metavar="N", help="Maximum number of samples for calibration.")
    ] = 128,
    held_back: Annotated[
        int,
        typer.Option(
            "--held-back",
            min=1,
            metavar="N",
            help="Maximum number of other samples, for the comparison with the float model.",
        ),
    ] = 64,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed that draws the samples.")] = 0,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="Class of each sample, for the accuracy: .npy, or a text with one number per line.",
            show_default=False,
        ),
    ] = None,
    mean: Annotated[
        str,
        typer.Option(
            "--mean",
            metavar="X,…",
            help="Raw values x, such as pixels, become (x - mean) / std; one number, or one per channel. "
            "[default: by the model's metadata]",
            show_default=False,
        ),
    ] = "",
    std: Annotated[str, typer.Option("--std", metavar="X,…", help="See --mean.", show_default=False)] = "",
    target: TargetName = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            callback=named,
            help="Also write the report as an HTML page.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Quantise a float model, and check the result layer by layer.

    The report compares the quantised model with the float model on held-back samples, layer by layer, and
    says where most is lost and what to do. Exit code 1 if microfold cannot compile the result, or if its C
    code differs from the reference.
    """
    if scheme not in _SCHEMES:
        raise InputError(f"--scheme must be {', '.join(_SCHEMES)}; it is {scheme!r}")
    if output is None and not compare:
        raise InputError("quantize requires --output FILE, or --compare")
    target = choose_target(target, CORE, as_json)
    from microfold.frontend.tflite import read_file
    from microfold.quantization.report import quantize_report
    from microfold.quantization.session import QuantizationSettings, check_outputs, run
    from microfold.quantization.text import print_quantisation
    from microfold.support.files import write_file
    from microfold.target import load

    check_outputs(model, {"--output": output, "--html": html})
    settings = QuantizationSettings(
        data,
        tuple(layer or ()),
        samples,
        held_back,
        seed,
        labels,
        _numbers("--mean", mean),
        _numbers("--std", std),
    )
    core = load(target)
    schemes = [*SCHEMES.values()] if compare else [SCHEMES[scheme]]
    content = read_file(model)
    found = run(model.name, content, schemes, settings, core, lambda what: progress_bar(what, as_json))
    chosen = next(result for result in found.results if result.scheme.name == scheme)
    content = found.of_scheme(scheme).data if output is not None else b""
    if html is not None:
        from microfold.quantization.page import render_quantisation

        write_file(html, render_quantisation(found, chosen))
    if output is not None:
        write_file(output, content)
    if as_json:
        print_json(quantize_report(found))
    else:
        print_quantisation(found, (output, html))
    if chosen.problem or (chosen.verified is not None and chosen.verified.exact is False):
        raise typer.Exit(1)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(",")) if text else ()
    except ValueError:
        raise InputError(f"{option} must be numbers, separated by commas; it is {text!r}") from None
