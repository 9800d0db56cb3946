"""microfold run"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import typer

from microfold.cli.common import compile_model, print_json, working
from microfold.cli.inputs import load_inputs
from microfold.cli.options import CodeOptions, Custom, Json, Model
from microfold.cli.outputs import named
from microfold.cli.pass_options import InputType, OutputType, PassOptions


def run(
    model: Model,
    inputs: Annotated[
        list[Path],
        typer.Option(
            "--input",
            metavar="FILE.npy",
            help="One .npy file per model input. Repeatable.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            callback=named,
            metavar="PATH",
            help="Write the outputs to this .npz file.",
            show_default=False,
        ),
    ] = None,
    input_type: InputType = None,
    output_type: OutputType = None,
    custom: Custom = None,
    as_json: Json = False,
) -> None:
    """Run a model on this machine and print its outputs. Each input set is one run."""
    passes = PassOptions(input_type=input_type, output_type=output_type)
    program = compile_model(model, "host", CodeOptions(custom=custom), passes, as_json)
    import numpy as np

    from microfold.host.session import Session
    from microfold.support.files import write_file

    calls = load_inputs(inputs, program)
    with working("compiling the C code", as_json):
        session = Session(program)
    with working(f"running {model.name}", as_json):
        results = [session.run(*call) for call in calls]
    if output is not None:
        stacked: dict[str, Any] = {
            f"output_{i}": np.stack([result[i] for result in results]) for i in range(len(program.outputs))
        }
        archive = BytesIO()
        np.savez(archive, **stacked)
        # Add the suffix as numpy does.
        named = (
            output if output.suffix == ".npz" or not output.name else output.with_name(f"{output.name}.npz")
        )
        write_file(named, archive.getvalue())
    if as_json:
        print_json({"outputs": [[array.tolist() for array in result] for result in results]})
        return
    for number, result in enumerate(results):
        for index, (array, buffer) in enumerate(zip(result, program.outputs, strict=True)):
            print(f'call {number}, output {index} "{buffer.value.name}" {buffer.type}:')
            print(np.array2string(array, threshold=64, max_line_width=100))
